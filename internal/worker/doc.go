// Package worker hands work to workers: processes that dial in, say what they can do, and take assignments over one stream.
//
//	hub := worker.New(worker.Options{})
//	schedulerdv1.RegisterWorkerServiceServer(server, hub)
//	result, err := hub.Do(ctx, &worker.Work{Invocation: invocation})
//
// # Sessions
//
// A session is a worker as the hub knows it. It outlives its stream: streams break, and a worker that dials again within the
// session timeout, with the session's id and the ids of the assignments it still has, goes on as if nothing had happened. After
// that time the session is given up, and so is the worker's right to its assignments: a worker must stop working on them by
// itself when it has heard nothing for so long. A worker and the hub both send a heartbeat when they have nothing else to say;
// a stream on which nothing was heard for three intervals is dead, whatever TCP says of it.
//
// # Assignments
//
// An assignment is one offer of one attempt to one session. How it stands is decided by one pure function: see protocol.go. An
// assignment that was not accepted goes back to the front of the queue and is offered as a new one. One that was accepted is
// never offered again: if its session is given up, the attempt fails with the class "worker_lost", and whether there is another
// one is for the retry policy to say, with the same idempotency key.
//
// Everything is in memory. After a crash of the daemon the workers' sessions are unknown: their assignments are cancelled, and
// the attempts are made again as the flow's on_crash says, with the same idempotency keys.
package worker
