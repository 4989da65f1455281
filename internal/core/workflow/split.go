package workflow

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

// Causes of the cancellation of branches.
var (
	errDecided     = errors.New("the split was decided without it")
	errJoinTimeout = errors.New("the timeout of the join passed")
)

// branchEnd is how a branch ended.
type branchEnd struct {
	result Result
	frame  *Frame // of a nested workflow that can be undone
	err    error
	how    branchOutcome
}

type branchOutcome uint8

const (
	branchCancelled branchOutcome = iota // or never started
	branchSucceeded
	branchFailed
)

// splitRun is a split under way.
type splitRun struct {
	*Split
	m      *machine
	v      *visit
	items  []any // of a for_each
	needed int
	visits []visit         // of the first branches, in one piece
	ctx    context.Context // of the branches
	cancel context.CancelCauseFunc

	mu       sync.Mutex
	next     int // branch to start next
	ends     []branchEnd
	tally    tally
	decision decision
	why      error // the decision was made by the timeout
	over     bool  // all branches have ended: the timeout comes too late
}

// split does the work of a split state. Its result is the list of its branches' ends, in their order.
func (m *machine) split(ctx context.Context, s *Split, v *visit) (Result, []Frame, error) {
	started := m.clock()
	fail := func(err error) (Result, []Frame, error) { return Result{}, nil, &StateError{v.State, 1, err} }
	r := &splitRun{Split: s, m: m, v: v, ctx: ctx}
	total := len(s.Branches)
	if s.ForEach != nil {
		var err error
		if r.items, err = m.items(s.ForEach, v); err != nil {
			return fail(err)
		}
		total = len(r.items)
	}
	if total*emptyEnd > MaxRunBytes {
		return fail(fmt.Errorf("%d branches are too many: their ends alone exceed the %d KiB of results that a workflow may hold", total, MaxRunBytes>>10))
	}
	r.ends = make([]branchEnd, total)
	r.tally.total = total
	r.needed = s.Join.needed(total)
	r.decision = s.Join.decide(r.tally, r.needed, total == 0)
	if r.decision == undecided {
		r.run(ctx)
	}
	frames := r.frames()
	if err := r.incomplete(); err != nil {
		return Result{}, frames, err
	}
	if ctx.Err() != nil && r.decision != met {
		return Result{}, frames, context.Cause(ctx)
	}
	if m.run.Journal != nil {
		now := time.Now()
		m.emit(Event{Time: now, Type: SplitDecided, State: v.State, Detail: r.summary(), Duration: now.Sub(started)})
	}
	if r.decision == missed {
		return Result{}, frames, &StateError{v.State, 1, r.failure()}
	}
	return r.result(), frames, nil
}

// items evaluates the list of a for_each.
func (m *machine) items(f *ForEach, v *visit) ([]any, error) {
	items, err := evaluate(m, f.Items, &v.scope)
	if err != nil {
		return nil, fmt.Errorf("for_each.items: %w", err)
	}
	limit := f.MaxItems
	if limit == 0 {
		limit = DefaultMaxItems
	}
	if len(items) > limit {
		return nil, fmt.Errorf("for_each.items gave %d items, more than the %d that max_items allows", len(items), limit)
	}
	return items, nil
}

// run runs the branches and returns when all that were started have ended. The caller's goroutine is one of the workers.
func (r *splitRun) run(ctx context.Context) {
	if !r.Join.WaitAll || r.Join.Timeout > 0 {
		r.ctx, r.cancel = context.WithCancelCause(ctx)
		defer r.cancel(nil)
	}
	if r.Join.Timeout > 0 {
		timer := time.AfterFunc(r.Join.Timeout, r.timeout)
		defer timer.Stop()
	}
	workers := len(r.ends)
	if r.Bulkhead > 0 {
		workers = min(workers, r.Bulkhead)
	}
	if workers <= maxSlab {
		r.visits = make([]visit, workers)
	}
	var wg sync.WaitGroup
	work := r.work
	for range workers - 1 {
		wg.Go(work)
	}
	work()
	wg.Wait()
	r.mu.Lock()
	r.over = true
	r.mu.Unlock()
}

// work runs one branch after the other, as long as there are branches to start.
func (r *splitRun) work() {
	for {
		r.mu.Lock()
		i := r.next
		if i == len(r.ends) || r.ctx.Err() != nil {
			r.mu.Unlock()
			return
		}
		r.next++
		r.mu.Unlock()

		result, frame, err := r.branch(i)
		r.record(i, result, frame, err)
	}
}

// branch runs branch i. Whatever panics in it is its failure.
func (r *splitRun) branch(i int) (result Result, frame *Frame, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = recovered(r.m.log, "a branch", p)
		}
	}()
	b, v := r.visit(i)
	if step, ok := b.Work.(*Step); ok {
		result, err = r.m.perform(r.ctx, step, v)
		return result, nil, err
	}
	result, frame, err = r.m.nested(r.ctx, b.Work, v, nil, false)
	if frame != nil {
		frame.Branch = i
	}
	return result, frame, err
}

// visit makes what the task of branch i is given.
func (r *splitRun) visit(i int) (*Branch, *visit) {
	b, forEach := r.of(i)
	var v *visit
	if i < len(r.visits) {
		v = &r.visits[i]
	} else {
		v = new(visit)
	}
	entered := r.v.Entered
	if r.Bulkhead > 0 {
		entered = time.Now() // it may have waited for its turn
	}
	name := branchName(*b, i, forEach)
	v.begin(r.m, r.v.State+"/"+name, r.v.IdempotencyKey+"/"+name, entered)
	if forEach {
		v.scope.Item, v.scope.Index = r.items[i], i
	}
	return b, v
}

// of is the definition of branch i.
func (r *splitRun) of(i int) (b *Branch, forEach bool) {
	if r.ForEach != nil {
		return &r.ForEach.Branch, true
	}
	return &r.Branches[i], false
}

// record notes how a branch ended and decides the split if that decides it.
func (r *splitRun) record(i int, result Result, frame *Frame, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	end := &r.ends[i]
	end.frame, end.err = frame, err
	switch {
	case err == nil:
		end.how, end.result = branchSucceeded, result
		r.tally.succeeded++
	case r.ctx.Err() != nil:
		end.how = branchCancelled
	default:
		end.how = branchFailed
		r.tally.failed++
	}
	if r.decision == undecided {
		r.decide(r.Join.decide(r.tally, r.needed, false))
	}
}

// decide makes a decision and, unless the rest is waited for, ends it. r.mu is held.
func (r *splitRun) decide(d decision) {
	r.decision = d
	if d != undecided && !r.Join.WaitAll {
		r.cancel(errDecided)
	}
}

// timeout evaluates the condition when the join's time is up, then ends the rest.
func (r *splitRun) timeout() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		return
	}
	if r.decision == undecided {
		r.decision, r.why = r.Join.decide(r.tally, r.needed, true), errJoinTimeout
	}
	r.cancel(errJoinTimeout)
}

// frames is what completed in the branches and can be undone.
func (r *splitRun) frames() []Frame {
	var frames []Frame
	for i := range r.ends {
		if f := r.ends[i].frame; f != nil {
			frames = append(frames, *f)
		}
	}
	return frames
}

// incomplete is the error of a branch whose rollback failed, if there is one. What it left undone must not be forgotten,
// however the split was decided.
func (r *splitRun) incomplete() error {
	var all *RollbackError
	for i := range r.ends {
		one, ok := errors.AsType[*RollbackError](r.ends[i].err)
		switch {
		case !ok:
		case all == nil:
			all = &RollbackError{Cause: one.Cause, Undone: one.Undone}
		default:
			all.Undone = append(all.Undone[:len(all.Undone):len(all.Undone)], one.Undone...)
		}
	}
	if all == nil {
		return nil
	}
	return all
}

// summary is the decision in words.
func (r *splitRun) summary() string {
	how := "met"
	if r.decision == missed {
		how = "missed"
	}
	if r.why != nil {
		how += " at the timeout"
	}
	cancelled := r.tally.total - r.tally.succeeded - r.tally.failed
	return fmt.Sprintf("%s: %d succeeded, %d failed, %d cancelled of %d; %s", how, r.tally.succeeded, r.tally.failed, cancelled, r.tally.total, r.Join.describe(r.needed, r.tally.total))
}

// failure is the error of a split whose condition was missed.
func (r *splitRun) failure() error {
	const most = 3
	var causes strings.Builder
	told := 0
	var first error
	for i := range r.ends {
		if r.ends[i].how != branchFailed {
			continue
		}
		if told++; told > most {
			continue
		}
		if told == 1 {
			first = r.ends[i].err
		}
		fmt.Fprintf(&causes, "; %v", r.ends[i].err)
	}
	if told > most {
		fmt.Fprintf(&causes, "; and %d more", told-most)
	}
	if first == nil {
		if r.why != nil {
			return &Error{Err: fmt.Errorf("%s (timeout %v)", r.summary(), r.Join.Timeout), Class: classTimeout}
		}
		return errors.New(r.summary())
	}
	return &joinError{r.summary() + causes.String(), first}
}

// joinError is the failure of a split, with its first branch's error for errors.As.
type joinError struct {
	text  string
	first error
}

func (e *joinError) Error() string { return e.text }
func (e *joinError) Unwrap() error { return e.first }

// maxSlab bounds what a task can keep from being freed by keeping its invocation.
const maxSlab = 16

// maxErrorBytes bounds the text of a branch's error in the split's result.
const maxErrorBytes = 1 << 10

// emptyEnd is the size in a list of the end of a branch without a name that has nothing to tell.
var emptyEnd = sizeOf([]any{endOf("", "", &branchEnd{})}) - sizeOf([]any{})

// result is the list of the branches' ends.
func (r *splitRun) result() Result {
	list := make([]any, len(r.ends))
	size := sizeOf(list[:0])
	for i := range r.ends {
		end := &r.ends[i]
		b, forEach := r.of(i)
		name := branchName(*b, i, forEach)
		text := ""
		if end.how == branchFailed {
			if text = end.err.Error(); len(text) > maxErrorBytes {
				text = strings.ToValidUTF8(text[:maxErrorBytes], "") + "…"
			}
		}
		list[i] = endOf(name, text, end)
		size += emptyEnd + len(name) + len(text)
		if end.result.Value != nil {
			size += end.result.size - sizeOf(nil)
		}
	}
	return Result{Value: list, size: size}
}

func endOf(name, text string, end *branchEnd) map[string]any {
	return map[string]any{
		"branch":    name,
		"succeeded": end.how == branchSucceeded,
		"cancelled": end.how == branchCancelled,
		"result":    end.result.Value,
		"error":     text,
	}
}

// branchName names branch i of a split for events, results and keys.
func branchName(b Branch, i int, forEach bool) string {
	switch {
	case b.Name == "":
		return itoa(i)
	case forEach:
		return b.Name + "-" + itoa(i)
	}
	return b.Name
}
