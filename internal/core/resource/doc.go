// Package resource holds what a flow's tasks share: things that are set up once when the scheduler starts and torn down once when
// it stops, and guards that hold calls to a target back.
//
// # Life
//
// Setup makes the resources of a list ready, in its order, and gives a Set. If one fails, those that were ready are torn down,
// newest first, and nothing is left behind. (*Set).Teardown tears all of a set down, newest first; a failure of one does not keep
// the others from it. Each call has a bound, and a panic in it is its error. A call that goes on after its bound is given
// AbandonAfter to come to an end; then it is left alone and reported with ErrAbandoned: it may still be going on, and that is a
// fault of the resource.
//
// Sets are layered: a flow's own set lies over the shared one, so that Get finds both.
//
// # Guards
//
// A Guard is attached to a resource by its Declaration and found by the resource's name. A task that names the resource as its
// target asks the guard before each attempt. Gate is the one there is: a Breaker, a Limiter or both.
//
// A Breaker is closed at first. FailureThreshold failures in a row open it: calls are refused until ResetTimeout has passed. Then
// it is half open: HalfOpenCalls trial calls are admitted; when that many have succeeded it closes, when one fails it opens for
// another ResetTimeout. A call is only counted in the epoch it was admitted in: one that began before the breaker opened and ends
// after it closed says nothing about the target's health now. A cancelled call counts for neither side.
//
// A Limiter is a token bucket: a call takes a token or waits for one, in order of arrival, and tokens come back at a fixed rate. A
// call whose context would end before its token comes is refused at once.
package resource
