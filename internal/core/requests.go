package core

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"time"

	storev1 "github.com/schedulerd/schedulerd/gen/go/schedulerd/store/v1"
	"github.com/schedulerd/schedulerd/internal/core/flow"
	"github.com/schedulerd/schedulerd/internal/core/store"
)

// requestWindow is how long an answered request is remembered.
const requestWindow = 24 * time.Hour

// request is a call with a request id: the same id gets the first answer again.
type request struct {
	id      string
	digest  uint64
	at      flow.Instant
	entry   *entry // the flow it is about; nil: of all
	run     uint64 // the run that was started or cancelled
	info    *Info  // the flow's state that was answered: right after the change, whatever else its commit has
	state   *storev1.StateRecord
	answer  *ApplyResult
	done    bool
	waiting []func(*request) // repeated calls that came before the first was answered
}

// requests remembers answered requests and those on their way.
type requests struct {
	byID  map[string]*request
	order []*request // oldest first
}

// digestOf identifies a call: the method and its arguments.
func digestOf(method string, args ...any) uint64 {
	h := fnv.New64a()
	h.Write([]byte(method))
	for _, arg := range args {
		data, _ := json.Marshal(arg) // arguments are JSON-like
		fmt.Fprintf(h, "%d:", len(data))
		h.Write(data)
	}
	return h.Sum64()
}

// repeated answers a call whose id was seen before, and reports whether it was. A new id is noted; the caller goes on and either
// records the request or forgets it.
func (e *engine) repeated(id string, digest uint64, en *entry, now flow.Instant, answer func(*request, error)) (*request, bool) {
	if id == "" {
		return nil, false
	}
	e.forgetOld(now)
	if r, ok := e.requests.byID[id]; ok {
		switch {
		case r.digest != digest:
			answer(nil, fmt.Errorf("%w: request id %s was used for another call", ErrConflict, id))
		case r.done:
			answer(r, nil)
		default:
			r.waiting = append(r.waiting, func(r *request) {
				if r == nil {
					answer(nil, fmt.Errorf("%w: the first call with this request id was refused", ErrConflict))
					return
				}
				answer(r, nil)
			})
		}
		return nil, true
	}
	r := &request{id: id, digest: digest, at: now, entry: en}
	e.requests.byID[id] = r
	return r, false
}

// record makes the answer to a request durable with the group being gathered. A nil request needs none.
func (e *engine) record(r *request) {
	if r == nil {
		return
	}
	e.requests.order = append(e.requests.order, r)
	e.group.requests = append(e.group.requests, r)
	if r.entry != nil {
		r.state = r.entry.record(0)
	}
	e.later(func() {
		r.done = true
		for _, answer := range r.waiting {
			answer(r)
		}
		r.waiting = nil
	})
}

// forget takes back a request that was refused: a repeated call is judged anew.
func (e *engine) forget(r *request) {
	if r == nil {
		return
	}
	delete(e.requests.byID, r.id)
	for _, answer := range r.waiting {
		answer(nil)
	}
}

// forgetOld drops requests that are older than the window, some at a time.
func (e *engine) forgetOld(now flow.Instant) {
	for range 2 { // two for each new one: the list shrinks
		if len(e.requests.order) == 0 || e.requests.order[0].at.Add(requestWindow) > now {
			return
		}
		r := e.requests.order[0]
		e.requests.order = e.requests.order[1:]
		delete(e.requests.byID, r.id)
		e.remember(r.shard(), key(requestKey, r.id), nil)
	}
}

func (r *request) shard() store.Shard {
	if r.entry == nil {
		return 0
	}
	return r.entry.shard
}

func (r *request) recordAt(revision uint64) *storev1.RequestRecord {
	record := &storev1.RequestRecord{Time: int64(r.at), Digest: r.digest, Run: r.run, Revision: revision}
	if r.entry != nil {
		r.state.Revision = revision
		record.FlowId, record.State = r.entry.id, r.state
	}
	return record
}
