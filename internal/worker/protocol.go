package worker

// phase is how an assignment stands, as the hub knows it.
type phase uint8

const (
	gone     phase = iota // over, or never known
	offered               // sent to the worker, which has not accepted it yet
	running               // accepted
	unwanted              // taken back, but the worker may still be at it: its slot stays taken until it says that it ended
	phases
)

// event is what happens to an assignment.
type event uint8

const (
	accepts   event = iota // the worker takes it
	rejects                // the worker does not want it
	ends                   // the worker reports its result or failure
	late                   // it was not accepted in time
	withdrawn              // the attempt is over: cancelled, or timed out
	held                   // the worker resumed its session and still has it
	forgotten              // the worker resumed its session and has it no more
	lost                   // the session is given up
	events
)

// effect is what is to be done about an event.
type effect uint8

const (
	requeue effect = 1 << iota // offer the attempt to others
	settle                     // what the worker reports is the end of the attempt
	fail                       // the attempt fails: the worker that had it is lost to it
	ack                        // tell the worker that its report is recorded
	cancel                     // tell the worker that it is not wanted
)

// next is the whole life of an assignment. No attempt is lost: it is requeued, settled or failed once, whatever happens; and
// none that a worker accepted is ever requeued.
func (p phase) next(e event) (phase, effect) {
	switch p {
	case offered:
		switch e {
		case accepts, held: // one that is held was accepted, and the word of it lost with the stream
			return running, 0
		case rejects, forgotten, lost:
			return gone, requeue
		case ends: // the same: its acceptance was lost
			return gone, settle | ack
		case late:
			return unwanted, requeue | cancel
		case withdrawn:
			return unwanted, cancel
		}
	case running:
		switch e {
		case ends:
			return gone, settle | ack
		case withdrawn:
			return unwanted, cancel
		case rejects, forgotten, lost:
			return gone, fail
		}
	case unwanted:
		switch e {
		case ends:
			return gone, ack
		case rejects, forgotten, lost:
			return gone, 0
		case held:
			return unwanted, cancel
		}
	case gone:
		switch e {
		case accepts, held:
			return gone, cancel
		case ends: // again, because the word that it was recorded was lost
			return gone, ack
		}
	}
	return p, 0
}
