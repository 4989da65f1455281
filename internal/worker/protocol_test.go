package worker

import (
	"testing"

	"pgregory.net/rapid"
)

func TestNext(t *testing.T) {
	type row struct {
		from phase
		on   event
		to   phase
		do   effect
	}
	rows := []row{
		{offered, accepts, running, 0},
		{offered, rejects, gone, requeue},
		{offered, ends, gone, settle | ack},
		{offered, late, unwanted, requeue | cancel},
		{offered, withdrawn, unwanted, cancel},
		{offered, held, running, 0},
		{offered, forgotten, gone, requeue},
		{offered, lost, gone, requeue},

		{running, accepts, running, 0},
		{running, rejects, gone, fail},
		{running, ends, gone, settle | ack},
		{running, late, running, 0},
		{running, withdrawn, unwanted, cancel},
		{running, held, running, 0},
		{running, forgotten, gone, fail},
		{running, lost, gone, fail},

		{unwanted, accepts, unwanted, 0},
		{unwanted, rejects, gone, 0},
		{unwanted, ends, gone, ack},
		{unwanted, late, unwanted, 0},
		{unwanted, withdrawn, unwanted, 0},
		{unwanted, held, unwanted, cancel},
		{unwanted, forgotten, gone, 0},
		{unwanted, lost, gone, 0},

		{gone, accepts, gone, cancel},
		{gone, rejects, gone, 0},
		{gone, ends, gone, ack},
		{gone, late, gone, 0},
		{gone, withdrawn, gone, 0},
		{gone, held, gone, cancel},
		{gone, forgotten, gone, 0},
		{gone, lost, gone, 0},
	}
	seen := map[[2]uint8]bool{}
	for _, r := range rows {
		seen[[2]uint8{uint8(r.from), uint8(r.on)}] = true
		if to, do := r.from.next(r.on); to != r.to || do != r.do {
			t.Errorf("phase %d, event %d: got phase %d, effects %b; want %d, %b", r.from, r.on, to, do, r.to, r.do)
		}
	}
	if len(seen) != int(phases)*int(events) {
		t.Errorf("%d of %d cases have a row", len(seen), int(phases)*int(events))
	}
}

// Whatever happens, in whatever order: the attempt behind an assignment is let go exactly once, and never requeued once a
// worker has accepted it; an assignment that is gone stays gone; each report is acknowledged.
func TestAnyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, letGo, accepted := offered, 0, false
		for _, e := range rapid.SliceOfN(rapid.Custom(func(t *rapid.T) event { return event(rapid.Uint8Range(0, uint8(events)-1).Draw(t, "event")) }), 0, 30).Draw(t, "events") {
			attached := p == offered || p == running
			to, do := p.next(e)
			if do&(requeue|settle|fail) != 0 || attached && e == withdrawn {
				letGo++
			}
			if do&requeue != 0 && accepted {
				t.Fatal("requeued after it was accepted")
			}
			if (e == ends) != (do&ack != 0) {
				t.Fatalf("event %d, acknowledged: %v", e, do&ack != 0)
			}
			if p == gone && to != gone {
				t.Fatal("came back")
			}
			accepted = accepted || to == running
			p = to
			if still := p == offered || p == running; still != (letGo == 0) || letGo > 1 {
				t.Fatalf("phase %d, let go %d times", p, letGo)
			}
		}
	})
}
