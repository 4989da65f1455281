package core

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"google.golang.org/protobuf/proto"

	storev1 "github.com/schedulerd/schedulerd/gen/go/schedulerd/store/v1"
	"github.com/schedulerd/schedulerd/internal/core/flow"
	"github.com/schedulerd/schedulerd/internal/core/resource"
	"github.com/schedulerd/schedulerd/internal/core/store"
)

// loadedFlow is a flow at the start that needs more than to be known again: it is new or changed, it missed fire times, or a crash
// interrupted its run.
type loadedFlow struct {
	definition  *Definition
	set         *resource.Set
	entry       *entry // as it was; nil: it is new
	revision    uint64 // of the entry's state
	changed     bool   // the definition has to be stored
	unscheduled bool   // the next fire time has to be computed
	open        *storev1.OpenRun
	run         *storev1.OpenRunRecord
	was         *Definition // its definition at the end of the life before, if that was another one
	by          *Definition // the definition its open run goes by, if that is another one
	lost        error       // why its open run cannot go on
}

// waits is the oldest missed fire time that shall still run.
func (l *loadedFlow) waits() flow.Instant {
	if l.entry == nil || len(l.entry.backlog) == 0 {
		return 0
	}
	return l.entry.backlog[0]
}

// earlier is a definition that a flow had before; nil if it is no longer understood.
func (e *engine) earlier(d *Definition) *Definition {
	if _, err := d.flow(); err != nil {
		e.log.Warn("the definition that a flow had before is no longer understood; the present one takes its place", "flow", d.ID, "error", err)
		return nil
	}
	return d
}

// load reads the store and lays the given flows over it. Flows that came from a file before and are not given any more go. Most flows
// are there as they were after this, without having been compiled; those that need more are returned, the given ones first.
func (e *engine) load(ctx context.Context, given []*Definition, now flow.Instant) ([]*loadedFlow, error) {
	byID := make(map[string]int, len(given))
	for i, d := range given {
		byID[d.ID] = i
	}
	fresh := make([]*loadedFlow, len(given)) // those of the given ones that need more
	for i, d := range given {
		fresh[i] = &loadedFlow{definition: d, changed: true}
	}
	var others []*loadedFlow
	err := e.eachShard(ctx, func(shard *storedShard) error {
		e.horizon.Store(max(e.horizon.Load(), shard.horizon))
		e.basis += shard.basis // one has it
		for i := range shard.flows {
			f := &shard.flows[i]
			at, isGiven := byID[f.entry.id]
			l, err := e.place(ctx, f, shard, now, isGiven, func() *Definition { return given[at] })
			switch {
			case err != nil:
				return err
			case isGiven:
				fresh[at] = l
			case l != nil:
				others = append(others, l)
			}
		}
		e.restoreRequests(shard.requests)
		return nil
	})
	if err != nil {
		return nil, err
	}
	sortByTime(e.requests.order)
	loaded := others[:0:0]
	for _, l := range fresh {
		if l != nil {
			loaded = append(loaded, l)
		}
	}
	return append(loaded, others...), nil
}

// place makes a stored flow known again. It returns what has more to be done with; nil if that is all.
func (e *engine) place(ctx context.Context, f *storedFlow, shard *storedShard, now flow.Instant, isGiven bool, given func() *Definition) (*loadedFlow, error) {
	en := f.entry
	l := &loadedFlow{definition: en.flow, entry: en, revision: f.revision, unscheduled: f.unscheduled, open: f.open}
	if isGiven {
		d := given()
		l.changed = en.flow == nil || en.flow.Origin != d.Origin || len(d.Source) == 0 || !bytes.Equal(en.flow.Source, d.Source)
		if l.changed && en.flow != nil && en.flow.Origin == FromAPI {
			e.log.Warn("a flow that came over the API is now defined in a flows file", "flow", en.id)
		}
		if en.flow != nil && !bytes.Equal(en.flow.Source, d.Source) {
			l.was = e.earlier(e.stored(en.id, d.Origin, en.flow.Source))
		}
		en.flow, l.definition = d, d
	} else if en.flow == nil || en.flow.Origin == FromFile {
		return nil, e.bury(ctx, f)
	}
	if l.open != nil {
		l.run, l.by = shard.open[en.id], l.was
		if source := shard.pinned[en.id]; source != nil {
			l.by = e.earlier(e.stored(en.id, en.flow.Origin, source))
		}
	}
	missed := en.nextFire != 0 && en.nextFire < now
	ahead := max(en.cursor, en.state.LastFinish, en.state.NextEligible) > now // perhaps the clock was set back
	if en.deleted || missed || ahead || l.changed || l.unscheduled || l.open != nil || f.resources || len(en.backlog) > 0 {
		return l, nil
	}
	en.resources = e.bare
	e.enter(en)
	en.published.Store(en.info(f.revision))
	return nil, nil
}

// bury makes a tombstone of a flow that is not defined any more.
func (e *engine) bury(ctx context.Context, f *storedFlow) error {
	en := f.entry
	if en.flow != nil {
		e.remember(en.shard, key(definitionKey, en.id), nil)
	}
	en.flow = &Definition{ID: en.id}
	e.index.put(en)
	e.tombstones = append(e.tombstones, en)
	if !en.deleted {
		en.deleted, en.nextFire, en.backlog = true, 0, nil
		e.remember(en.shard, key(openRunKey, en.id), nil)
		e.remember(en.shard, key(pinnedKey, en.id), nil)
		err := e.Store.Scan(ctx, en.shard, historyPrefix(en.id), false, func(key, _ []byte) bool {
			e.change(en.shard, bytes.Clone(key), nil)
			return true
		})
		if err != nil {
			return err
		}
		e.touch(en)
	}
	en.published.Store(en.info(f.revision))
	return nil
}

// storedFlow is what a shard has of a flow.
type storedFlow struct {
	entry       *entry // its flow is nil if there is no definition
	revision    uint64
	unscheduled bool
	resources   bool
	open        *storev1.OpenRun
}

// storedShard is what a shard holds.
type storedShard struct {
	flows    []storedFlow // in order of id
	open     map[string]*storev1.OpenRunRecord
	pinned   map[string][]byte
	requests map[string]*storev1.RequestRecord
	horizon  uint64
	basis    string
}

// eachShard reads all shards, some at a time, and calls fn for one after the other.
func (e *engine) eachShard(ctx context.Context, fn func(*storedShard) error) error {
	type answer struct {
		shard *storedShard
		err   error
	}
	ctx, cancel := context.WithCancel(ctx)
	var readers sync.WaitGroup
	defer readers.Wait()
	defer cancel()
	var answers [Shards]chan answer
	for i := range answers {
		answers[i] = make(chan answer, 1)
	}
	var next atomic.Int64
	for range runtime.GOMAXPROCS(0) {
		readers.Go(func() {
			for i := next.Add(1) - 1; i < Shards && ctx.Err() == nil; i = next.Add(1) - 1 {
				read, err := e.readShard(ctx, store.Shard(i))
				answers[i] <- answer{read, err}
			}
		})
	}
	for _, answered := range answers {
		select {
		case a := <-answered:
			if a.err == nil {
				a.err = fn(a.shard)
			}
			if a.err != nil {
				return a.err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// readShard reads a shard. Definitions and states come in the same order, so they are joined on the way.
func (e *engine) readShard(ctx context.Context, shard store.Shard) (*storedShard, error) {
	out := &storedShard{open: map[string]*storev1.OpenRunRecord{}, pinned: map[string][]byte{}, requests: map[string]*storev1.RequestRecord{}}
	scan := func(kind string, take func(id string, value []byte) error) error {
		return scanRecords(ctx, e.Store, shard, kind, take)
	}
	var definitions []*Definition
	var resources []bool
	definition, state := new(storev1.DefinitionRecord), new(storev1.StateRecord)
	err := scan(definitionKey, func(id string, value []byte) error {
		if err := proto.Unmarshal(value, definition); err != nil {
			return err
		}
		definitions = append(definitions, e.stored(id, Origin(definition.Origin), definition.Source))
		resources = append(resources, definition.Resources)
		definition.Source = nil // it is the Definition's now
		return nil
	})
	if err != nil {
		return nil, err
	}
	out.flows = make([]storedFlow, 0, len(definitions))
	err = scan(stateKey, func(id string, value []byte) error {
		if err := proto.Unmarshal(value, state); err != nil {
			return err
		}
		en := &entry{id: id, shard: shard}
		en.restore(state)
		f := storedFlow{entry: en, revision: state.Revision, unscheduled: state.Unscheduled, open: state.Run}
		state.Run = nil
		if len(definitions) > 0 && definitions[0].ID < id {
			return fmt.Errorf("flow %q has a definition and no state", definitions[0].ID)
		}
		if len(definitions) > 0 && definitions[0].ID == id {
			en.flow, en.id, f.resources = definitions[0], definitions[0].ID, resources[0]
			definitions, resources = definitions[1:], resources[1:]
		}
		out.flows = append(out.flows, f)
		return nil
	})
	if err == nil && len(definitions) > 0 {
		err = fmt.Errorf("record %s%s: %w: it has a definition and no state", stateKey, definitions[0].ID, store.ErrCorrupt)
	}
	return out, errors.Join(err,
		scan(openRunKey, into(out.open)), scan(requestKey, into(out.requests)),
		scan(pinnedKey, func(id string, value []byte) error {
			out.pinned[id] = append([]byte(nil), value...)
			return nil
		}),
		scan(metaKey, func(id string, value []byte) error {
			switch id {
			case horizonID:
				_, err := fmt.Sscanf(string(value), "%x", &out.horizon)
				return err
			case basisID:
				out.basis = string(value)
			}
			return nil
		}),
	)
}

// scanRecords calls take for the records of a kind. An error of take is damage.
func scanRecords(ctx context.Context, s store.Store, shard store.Shard, kind string, take func(id string, value []byte) error) error {
	var fault error
	err := s.Scan(ctx, shard, []byte(kind), false, func(key, value []byte) bool {
		id := string(key[len(kind):])
		if err := take(id, value); err != nil {
			fault = fmt.Errorf("record %s%s: %w: %w", kind, id, store.ErrCorrupt, err)
		}
		return fault == nil
	})
	return errors.Join(err, fault)
}

// into decodes records into a map.
func into[T any, M interface {
	*T
	proto.Message
}](m map[string]M,
) func(id string, value []byte) error {
	return func(id string, value []byte) error {
		record := M(new(T))
		m[id] = record
		return proto.Unmarshal(value, record)
	}
}

// recheck compiles all definitions, and computes what next fire times depend on, after Config.Basis changed: the program or the time
// zones are others than those the stored ones were computed with. It goes on beside the engine, which keeps to the stored ones so long.
func (r *Running) recheck() {
	e := r.engine
	e.log.Info("the next fire times are computed anew: the program or the time zones have changed", "before", e.basis, "now", e.Basis)
	entries := 0
	send := func(m message) bool {
		done := make(chan struct{})
		if !e.inbox.put(func(e *engine, now flow.Instant) { m(e, now); close(done) }) {
			return false
		}
		select {
		case <-done:
			return true
		case <-e.over:
			return false
		}
	}
	e.index.each(func(en *entry) bool {
		if info := en.published.Load(); info != nil && !info.Deleted {
			_, _ = info.Flow.flow() // here, so that the engine has not to wait for it
			entries++
			return send(func(e *engine, now flow.Instant) { e.recheck(en, now) })
		}
		return true
	})
	send(func(e *engine, _ flow.Instant) {
		if e.halted == nil && !e.stopping {
			e.remember(0, key(metaKey, basisID), []byte(e.Basis))
			e.log.Info("the next fire times were computed anew", "flows", entries)
		}
	})
}

// recheck computes one flow's next fire time anew, unless it has come.
func (e *engine) recheck(en *entry, now flow.Instant) {
	if en.deleted || en.removing || e.stopping || e.plan(en) == broken || en.nextFire != 0 && en.nextFire <= now {
		return
	}
	if next, err := e.next(en, en.reached(now)); err == nil && next != en.nextFire {
		e.setDue(en, next)
		e.touch(en)
	}
}
