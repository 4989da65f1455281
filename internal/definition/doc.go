// Package definition turns the messages that define flows into flows that can run: protobuf in, core out.
//
// A Compiler checks everything that can be known before a run and tells all of it at once, as a fault.List whose fields are
// paths from the message that was compiled:
//
//  1. the protovalidate rules of the message, in words a user understands;
//  2. each schedule, by schedule.Compile;
//  3. each task and resource, by its kind (see package task);
//  4. each expression, by package expr, and the states and resources named in them;
//  5. each workflow as a whole, by workflow.Validate: unknown targets, unreachable states, missing exits;
//  6. the flows as a whole: ids given twice, calls of unknown flows, flows that call each other in a circle.
//
// What a definition leaves out gets its default here, as the comments of the messages say, unless core has the default itself.
//
// Digest and Diff compare definitions.
package definition
