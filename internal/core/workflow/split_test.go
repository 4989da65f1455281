package workflow

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// branchesOf makes branches of words: "1+" succeeds after a second, "2-" fails after two.
func branchesOf(words string) []Branch {
	var all []Branch
	for i, word := range strings.Fields(words) {
		d, err := time.ParseDuration(word[:len(word)-1] + "s")
		if err != nil {
			panic(err)
		}
		task := gives(fmt.Sprint("r", i))
		if word[len(word)-1] == '-' {
			task = fails(fmt.Sprint("e", i))
		}
		all = append(all, Branch{Work: once(after(d, task))})
	}
	return all
}

// forEachOf makes the same branches of a list.
func forEachOf(branches []Branch) *Split {
	items := make([]any, len(branches))
	return &Split{ForEach: &ForEach{
		Items: func(*Scope) ([]any, error) { return items, nil },
		Branch: Branch{Work: once(func(ctx context.Context, in *Invocation) (Result, error) {
			return branches[in.Scope.Index].Work.(*Step).Task.Run(ctx, in)
		})},
	}}
}

// splitEnd runs a split on virtual time and tells how it went: "ok 2s ++x".
func splitEnd(t *testing.T, ctx func() (context.Context, context.CancelFunc), s *Split, branches int) (text string, end End) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c, cancel := ctx()
		defer cancel()
		begin := time.Now()
		var journal *recorder
		end, journal = run(t, c, line(does(s)), &Run{})
		took := time.Since(begin)
		marks := []byte(strings.Repeat("x", branches))
		for _, e := range journal.events {
			name, ok := strings.CutPrefix(e.State, "s1/")
			if !ok {
				continue
			}
			var i int
			fmt.Sscan(name, &i)
			switch e.Type {
			case AttemptSucceeded:
				marks[i] = '+'
			case AttemptFailed:
				marks[i] = '-'
			}
		}
		how := map[Outcome]string{Succeeded: "ok", Failed: "failed", Cancelled: "cancelled", TimedOut: "timed out"}[end.Outcome]
		text = strings.TrimSpace(fmt.Sprintf("%s %v %s", how, took, marks))
		if started, ended := journal.count(AttemptStarted), journal.count(AttemptSucceeded)+journal.count(AttemptFailed)+journal.count(AttemptCancelled); started != ended {
			t.Errorf("%d attempts started, %d ended", started, ended)
		}
	})
	return text, end
}

func background() (context.Context, context.CancelFunc) {
	return context.WithCancel(context.Background())
}

func cancelAfter(d time.Duration) func() (context.Context, context.CancelFunc) {
	return func() (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(d, cancel)
		return ctx, cancel
	}
}

func TestStrategies(t *testing.T) {
	const none = ""
	scenarios := []struct {
		name     string
		branches string
		timeout  time.Duration // of the join; partial_timeout has 10 s where this is 0
		cancel   time.Duration
		waitAll  bool
		// ALL, ANY, QUORUM 2, PERCENTAGE 0.6, PARTIAL_RESULTS 2, PARTIAL_TIMEOUT
		want [6]string
	}{
		{"all succeed", "1+ 2+ 3+", 0, 0, false, [6]string{"ok 3s +++", "ok 1s +xx", "ok 2s ++x", "ok 2s ++x", "ok 2s ++x", "ok 3s +++"}},
		{"all fail", "1- 2- 3-", 0, 0, false, [6]string{"failed 1s -xx", "failed 3s ---", "failed 2s --x", "failed 2s --x", "failed 2s --x", "ok 3s ---"}},
		{"mixed", "1- 2+ 3+", 0, 0, false, [6]string{"failed 1s -xx", "ok 2s -+x", "ok 3s -++", "ok 3s -++", "ok 3s -++", "ok 3s -++"}},
		{"mixed, mostly failing", "1- 2+ 3-", 0, 0, false, [6]string{"failed 1s -xx", "ok 2s -+x", "failed 3s -+-", "failed 3s -+-", "failed 3s -+-", "ok 3s -+-"}},
		{"slow", "1+ 2+ 3600+", 0, 0, false, [6]string{"ok 1h0m0s +++", "ok 1s +xx", "ok 2s ++x", "ok 2s ++x", "ok 2s ++x", "ok 10s ++x"}},
		{"slow, none", "3600+ 3601+ 3602+", 0, 0, false, [6]string{"ok 1h0m2s +++", "ok 1h0m0s +xx", "ok 1h0m1s ++x", "ok 1h0m1s ++x", "ok 1h0m1s ++x", "failed 10s xxx"}},
		{"timeout", "1+ 3600+ 3601+", 5 * time.Second, 0, false, [6]string{"failed 5s +xx", "ok 1s +xx", "failed 5s +xx", "failed 5s +xx", "failed 5s +xx", "ok 5s +xx"}},
		{"timeout after failures", "1- 3600+ 3601+", 5 * time.Second, 0, false, [6]string{"failed 1s -xx", "failed 5s -xx", "failed 5s -xx", "failed 5s -xx", "failed 5s -xx", "ok 5s -xx"}},
		{"timeout of nothing", "3600+ 3601+ 3602+", 5 * time.Second, 0, false, [6]string{"failed 5s xxx", "failed 5s xxx", "failed 5s xxx", "failed 5s xxx", "failed 5s xxx", "failed 5s xxx"}},
		{"cancel", "1+ 3600+ 3601-", 0, 5 * time.Second, false, [6]string{"cancelled 5s +xx", "ok 1s +xx", "cancelled 5s +xx", "cancelled 5s +xx", "cancelled 5s +xx", "cancelled 5s +xx"}},
		{"one", "1+", 0, 0, false, [6]string{"ok 1s +", "ok 1s +", "failed 0s x", "ok 1s +", "failed 0s x", "ok 1s +"}}, // n > branches: out of reach at once
		{"empty", none, 0, 0, false, [6]string{"ok 0s", "failed 0s", "failed 0s", "ok 0s", "failed 0s", "failed 0s"}},

		{"wait_all, all succeed", "1+ 2+ 3+", 0, 0, true, [6]string{"ok 3s +++", "ok 3s +++", "ok 3s +++", "ok 3s +++", "ok 3s +++", "ok 3s +++"}},
		{"wait_all, all fail", "1- 2- 3-", 0, 0, true, [6]string{"failed 3s ---", "failed 3s ---", "failed 3s ---", "failed 3s ---", "failed 3s ---", "ok 3s ---"}},
		{"wait_all, mixed", "1- 2+ 3+", 0, 0, true, [6]string{"failed 3s -++", "ok 3s -++", "ok 3s -++", "ok 3s -++", "ok 3s -++", "ok 3s -++"}},
		{"wait_all, timeout", "1+ 2+ 3600+", 5 * time.Second, 0, true, [6]string{"failed 5s ++x", "ok 5s ++x", "ok 5s ++x", "ok 5s ++x", "ok 5s ++x", "ok 5s ++x"}},
		{"wait_all, cancel", "1- 2+ 3600+", 0, 5 * time.Second, true, [6]string{"cancelled 5s -+x", "cancelled 5s -+x", "cancelled 5s -+x", "cancelled 5s -+x", "cancelled 5s -+x", "cancelled 5s -+x"}},
	}
	joins := [6]Join{
		{Strategy: JoinAll},
		{Strategy: JoinAny},
		{Strategy: JoinQuorum, N: 2},
		{Strategy: JoinPercentage, Share: 0.6},
		{Strategy: JoinPartialResults, N: 2},
		{Strategy: JoinPartialTimeout},
	}
	names := [6]string{"ALL", "ANY", "QUORUM", "PERCENTAGE", "PARTIAL_RESULTS", "PARTIAL_TIMEOUT"}
	for _, scenario := range scenarios {
		for i, join := range joins {
			branches := branchesOf(scenario.branches)
			join.Timeout, join.WaitAll = scenario.timeout, scenario.waitAll
			if join.Timeout == 0 && join.Strategy == JoinPartialTimeout {
				join.Timeout = 10 * time.Second
			}
			ctx := background
			if scenario.cancel > 0 {
				ctx = cancelAfter(scenario.cancel)
			}
			forms := map[string]*Split{"for_each": forEachOf(branches)}
			if len(branches) > 1 {
				forms["branches"] = &Split{Branches: branches}
			}
			for form, split := range forms {
				t.Run(scenario.name+"/"+names[i]+"/"+form, func(t *testing.T) {
					split.Join = join
					if got, end := splitEnd(t, ctx, split, len(branches)); got != scenario.want[i] {
						t.Errorf("%s, want %s: %v", got, scenario.want[i], end.Err)
					}
				})
			}
		}
	}
}

// ending is when a branch ends by itself, and how.
type ending struct {
	at int // ms
	ok bool
}

// direct is the definition of the strategies, told from the ends of the branches: when the split is decided, and how.
func direct(j Join, branches []ending, timeout int) (ok bool, at int) {
	satisfied := func(succeeded, ended int) bool {
		switch j.Strategy {
		case JoinAll:
			return succeeded == len(branches)
		case JoinAny:
			return succeeded >= 1
		case JoinPercentage:
			percent := int(j.Share*100 + 0.5)
			return succeeded*100 >= percent*len(branches)
		case JoinPartialTimeout:
			return ended >= 1
		}
		return succeeded >= j.N
	}
	times := []int{0}
	for _, b := range branches {
		times = append(times, b.at)
	}
	slices.Sort(times)
	for _, now := range times {
		if timeout > 0 && now > timeout {
			break
		}
		succeeded, ended := 0, 0
		for _, b := range branches {
			if b.at <= now {
				ended++
				if b.ok {
					succeeded++
				}
			}
		}
		rest := len(branches) - ended
		if j.Strategy == JoinPartialTimeout {
			if rest == 0 {
				return satisfied(succeeded, ended), now
			}
			continue
		}
		if satisfied(succeeded, ended) {
			return true, now
		}
		if !satisfied(succeeded+rest, ended+rest) { // even if all the rest succeeded
			return false, now
		}
	}
	succeeded, ended := 0, 0
	for _, b := range branches {
		if b.at <= timeout {
			ended++
			if b.ok {
				succeeded++
			}
		}
	}
	return satisfied(succeeded, ended), timeout
}

func TestSplitDecidesLikeItsDefinition(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		join := drawJoin(rt)
		join.WaitAll = rapid.Bool().Draw(rt, "wait_all")
		// Ends at even, timeouts at odd milliseconds: nothing happens at the same instant.
		ats := rapid.SliceOfNDistinct(rapid.IntRange(1, 100), 0, 10, rapid.ID).Draw(rt, "ends")
		var endings []ending
		var branches []Branch
		for i, at := range ats {
			e := ending{2 * at, rapid.Bool().Draw(rt, "ok")}
			endings = append(endings, e)
			task := gives(float64(i))
			if !e.ok {
				task = fails("no")
			}
			branches = append(branches, Branch{Work: once(after(time.Duration(e.at)*time.Millisecond, task))})
		}
		timeout := 0
		if join.Strategy == JoinPartialTimeout || rapid.Bool().Draw(rt, "timeout?") {
			timeout = 2*rapid.IntRange(0, 110).Draw(rt, "timeout") + 1
		}
		join.Timeout = time.Duration(timeout) * time.Millisecond
		split := forEachOf(branches)
		split.Join = join

		got, end := splitEnd(t, background, split, len(branches))

		ok, decided := direct(join, endings, timeout)
		over := decided
		if join.WaitAll && len(endings) > 0 {
			last := slices.MaxFunc(endings, func(a, b ending) int { return a.at - b.at }).at
			over = last
			if timeout > 0 {
				over = min(last, timeout)
			}
			if decided == 0 {
				over = 0 // out of reach before anything started: nothing is started
			}
		}
		marks := ""
		for _, e := range endings {
			switch {
			case e.at > over || over == 0:
				marks += "x"
			case e.ok:
				marks += "+"
			default:
				marks += "-"
			}
		}
		how := "failed"
		if ok {
			how = "ok"
		}
		want := strings.TrimSpace(fmt.Sprintf("%s %v %s", how, time.Duration(over)*time.Millisecond, marks))
		if got != want {
			rt.Fatalf("%+v of %v: %s, want %s (%v)", join, endings, got, want, end.Err)
		}
		if !ok {
			return
		}
		list := end.Result.([]any)
		for i, mark := range marks {
			o := list[i].(map[string]any)
			if o["branch"] != fmt.Sprint(i) || o["succeeded"] != (mark == '+') || o["cancelled"] != (mark == 'x') || (o["error"] != "") != (mark == '-') || (o["result"] != nil) != (mark == '+') {
				rt.Fatalf("branch %d is %c: %v", i, mark, o)
			}
		}
	})
}

func TestSplitResult(t *testing.T) {
	var seen any
	w := line(
		does(&Split{Join: Join{Strategy: JoinPartialResults, N: 1}, Branches: []Branch{
			{Name: "slow", Work: once(after(time.Hour, noop))},
			{Work: once(after(time.Second, fails("down")))},
			{Name: "quick", Work: once(after(2*time.Second, gives("r")))},
		}}),
		does(once(func(_ context.Context, in *Invocation) (Result, error) {
			seen = in.Scope.Results["s1"]
			return Result{}, nil
		})),
	)
	synctest.Test(t, func(t *testing.T) {
		end, journal := run(t, t.Context(), w, &Run{})
		wantOutcome(t, end, Succeeded)
		var decided Event
		for _, e := range journal.events {
			if e.Type == SplitDecided {
				decided = e
			}
		}
		if decided.State != "s1" || decided.Duration != 2*time.Second || decided.Detail != "met: 1 succeeded, 1 failed, 1 cancelled of 3; 1 must succeed" {
			t.Errorf("event %+v", decided)
		}
	})
	want := []any{
		map[string]any{"branch": "slow", "succeeded": false, "cancelled": true, "result": nil, "error": ""},
		map[string]any{"branch": "1", "succeeded": false, "cancelled": false, "result": nil, "error": `state "s1/1": down`},
		map[string]any{"branch": "quick", "succeeded": true, "cancelled": false, "result": "r", "error": ""},
	}
	if fmt.Sprint(seen) != fmt.Sprint(want) {
		t.Errorf("result\n got %v\nwant %v", seen, want)
	}
}

func TestSplitFailure(t *testing.T) {
	var branches []Branch
	for i := range 5 {
		branches = append(branches, Branch{Work: once(fails(fmt.Sprint("e", i)))})
	}
	cause := &Error{Err: errors.New("down"), Class: "http:503"}
	branches[1].Work = once(func(context.Context, *Invocation) (Result, error) { return Result{}, cause })
	branches[0].Work = once(noop)
	end, journal := run(t, t.Context(), line(does(&Split{Branches: branches, Join: Join{Strategy: JoinAll, WaitAll: true}})), &Run{})
	wantOutcome(t, end, Failed)
	want := `state "s1": missed: 1 succeeded, 4 failed, 0 cancelled of 5; all must succeed; state "s1/1": down; state "s1/2": e2; state "s1/3": e3; and 1 more`
	if end.Err.Error() != want {
		t.Errorf("error\n got %s\nwant %s", end.Err, want)
	}
	if !errors.Is(end.Err, cause) {
		t.Error("the first branch's error is lost")
	}
	if journal.count(SplitDecided) != 1 {
		t.Error(journal.trace())
	}
}

func TestBranchesRetryByThemselves(t *testing.T) {
	var calls atomic.Int32
	flaky := &Step{Retry: again(2), Task: TaskFunc(func(_ context.Context, in *Invocation) (Result, error) {
		calls.Add(1)
		if in.Attempt < 3 {
			return Result{}, errors.New("again")
		}
		return Result{}, nil
	})}
	end, _ := run(t, t.Context(), line(does(&Split{Branches: []Branch{{Work: flaky}, {Work: once(noop)}}, Join: Join{Strategy: JoinAll}})), &Run{})
	wantOutcome(t, end, Succeeded)
	if calls.Load() != 3 {
		t.Errorf("%d calls", calls.Load())
	}
}

func TestBranchPanicIsItsFailure(t *testing.T) {
	branches := []Branch{{Work: once(panics("boom"))}, {Work: once(noop)}, {Work: once(noop)}}
	end, _ := run(t, t.Context(), line(does(&Split{Branches: branches, Join: Join{Strategy: JoinQuorum, N: 2}})), &Run{})
	wantOutcome(t, end, Succeeded)
	end, _ = run(t, t.Context(), line(does(&Split{Branches: branches, Join: Join{Strategy: JoinAll}})), &Run{})
	wantOutcome(t, end, Failed)
	wantError(t, end.Err, `state "s1/0": panic in the task: boom`)
}

// The next state does not begin before the losers have ended, even if they take their time to stop.
func TestLosersAreAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stopped := false
		stubborn := func(ctx context.Context, _ *Invocation) (Result, error) {
			<-ctx.Done()
			time.Sleep(3 * time.Second)
			stopped = true
			return Result{}, context.Cause(ctx)
		}
		begin := time.Now()
		w := line(
			does(&Split{Branches: []Branch{{Work: once(stubborn)}, {Work: once(after(time.Second, noop))}}, Join: Join{Strategy: JoinAny}}),
			does(once(func(context.Context, *Invocation) (Result, error) {
				if !stopped {
					t.Error("a loser is still running")
				}
				return Result{}, nil
			})),
		)
		end, journal := run(t, t.Context(), w, &Run{})
		wantOutcome(t, end, Succeeded)
		if took := time.Since(begin); took != 4*time.Second {
			t.Errorf("took %v", took)
		}
		for _, e := range journal.events {
			if e.Type == AttemptCancelled && e.Err != "the split was decided without it" {
				t.Errorf("event %+v", e)
			}
		}
		if journal.count(AttemptCancelled) != 1 || journal.count(AttemptFailed) != 0 {
			t.Error(journal.trace())
		}
	})
}

// A loser that succeeds in spite of its cancellation is reported as what it is.
func TestLoserThatSucceeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		deaf := func(context.Context, *Invocation) (Result, error) {
			time.Sleep(3 * time.Second)
			return Result{Value: "late"}, nil
		}
		end, _ := run(t, t.Context(), line(does(&Split{Branches: []Branch{{Work: once(deaf)}, {Work: once(noop)}}, Join: Join{Strategy: JoinAny}})), &Run{})
		wantOutcome(t, end, Succeeded)
		if o := end.Result.([]any)[0].(map[string]any); o["succeeded"] != true || o["result"] != "late" {
			t.Errorf("branch %v", o)
		}
	})
}

func TestBulkhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		running, peak := 0, 0
		var order []int
		begin := time.Now()
		s := &Split{
			ForEach: &ForEach{
				Items: func(*Scope) ([]any, error) { return make([]any, 10), nil },
				Branch: Branch{Work: once(func(ctx context.Context, in *Invocation) (Result, error) {
					mu.Lock()
					running++
					peak = max(peak, running)
					order = append(order, in.Scope.Index)
					mu.Unlock()
					err := sleep(ctx, time.Second)
					mu.Lock()
					running--
					mu.Unlock()
					return Result{}, err
				})},
			},
			Join:     Join{Strategy: JoinAll},
			Bulkhead: 2,
		}
		end, _ := run(t, t.Context(), line(does(s)), &Run{})
		wantOutcome(t, end, Succeeded)
		if peak != 2 || time.Since(begin) != 5*time.Second {
			t.Errorf("at most %d at once, in %v", peak, time.Since(begin))
		}
		for i, index := range order {
			if diff := i - index; diff < -1 || diff > 1 {
				t.Errorf("started in the order %v", order)
				break
			}
		}

		// The wait for a place counts against the join's timeout; what was never started is cancelled.
		s.Join.Timeout = 2500 * time.Millisecond
		s.Join.Strategy = JoinPartialTimeout
		end, journal := run(t, t.Context(), line(does(s)), &Run{})
		wantOutcome(t, end, Succeeded)
		if journal.count(AttemptStarted) != 6 || journal.count(AttemptSucceeded) != 4 {
			t.Error(journal.trace())
		}
		cancelled := 0
		for _, b := range end.Result.([]any) {
			if b.(map[string]any)["cancelled"] == true {
				cancelled++
			}
		}
		if cancelled != 6 {
			t.Errorf("%d cancelled, want 6", cancelled)
		}
	})
}

func TestForEach(t *testing.T) {
	items := []any{"oslo", "rome", map[string]any{"name": "bern"}}
	list := func(s *Scope) ([]any, error) { return s.Params["cities"].([]any), nil }
	var mu sync.Mutex
	seen := map[string]string{}
	look := func(_ context.Context, in *Invocation) (Result, error) {
		mu.Lock()
		defer mu.Unlock()
		seen[in.State] = fmt.Sprint(in.Scope.Index, " ", in.Scope.Item)
		return Result{Value: in.Scope.Item}, nil
	}
	w := line(does(&Split{ForEach: &ForEach{Items: list, Branch: Branch{Name: "city", Work: once(look)}}, Join: Join{Strategy: JoinAll}}))
	end, _ := run(t, t.Context(), w, &Run{Params: map[string]any{"cities": items}})
	wantOutcome(t, end, Succeeded)
	if fmt.Sprint(seen) != "map[s1/city-0:0 oslo s1/city-1:1 rome s1/city-2:2 map[name:bern]]" {
		t.Errorf("seen %v", seen)
	}
	if last := end.Result.([]any)[2].(map[string]any); last["branch"] != "city-2" || fmt.Sprint(last["result"]) != "map[name:bern]" {
		t.Errorf("result %v", last)
	}

	t.Run("nested workflows see the item", func(t *testing.T) {
		seen = map[string]string{}
		w := line(does(&Split{ForEach: &ForEach{Items: list, Branch: Branch{Work: &Nested{Workflow: line(does(once(look)), does(once(look)))}}}, Join: Join{Strategy: JoinAll}}))
		end, _ := run(t, t.Context(), w, &Run{Params: map[string]any{"cities": items[:2]}})
		wantOutcome(t, end, Succeeded)
		if fmt.Sprint(seen) != "map[s1/0/s1:0 oslo s1/0/s2:0 oslo s1/1/s1:1 rome s1/1/s2:1 rome]" {
			t.Errorf("seen %v", seen)
		}
	})
	t.Run("an error", func(t *testing.T) {
		broken := func(*Scope) ([]any, error) { return nil, errors.New("no such key: cities") }
		end, _ := run(t, t.Context(), line(does(&Split{ForEach: &ForEach{Items: broken, Branch: Branch{Work: once(noop)}}, Join: Join{Strategy: JoinAll}})), &Run{})
		wantOutcome(t, end, Failed)
		wantError(t, end.Err, `state "s1": for_each.items: no such key: cities`)
	})
	t.Run("bounds", func(t *testing.T) {
		many := func(n int) func(*Scope) ([]any, error) {
			return func(*Scope) ([]any, error) { return make([]any, n), nil }
		}
		started := 0
		count := once(func(context.Context, *Invocation) (Result, error) { started++; return Result{}, nil })
		for _, test := range []struct {
			n, max int
			err    string
		}{
			{3, 2, "gave 3 items, more than the 2 that max_items allows"},
			{DefaultMaxItems + 1, 0, "gave 10001 items, more than the 10000 that max_items allows"},
			{20_000, 1_000_000, "20000 branches are too many"},
		} {
			end, _ := run(t, t.Context(), line(does(&Split{ForEach: &ForEach{Items: many(test.n), MaxItems: test.max, Branch: Branch{Work: count}}, Join: Join{Strategy: JoinAll}})), &Run{})
			wantOutcome(t, end, Failed)
			wantError(t, end.Err, test.err)
		}
		if started != 0 {
			t.Errorf("%d branches were started", started)
		}
		end, _ := run(t, t.Context(), line(does(&Split{ForEach: &ForEach{Items: many(DefaultMaxItems), Branch: Branch{Work: count}}, Bulkhead: 1, Join: Join{Strategy: JoinAll}})), &Run{})
		wantOutcome(t, end, Succeeded)
		if started != DefaultMaxItems {
			t.Errorf("%d branches were started", started)
		}
	})
}

// Two levels: a split of splits, reduced to one number.
func TestMapReduce(t *testing.T) {
	split := func(n int, branch Work) *Split {
		items := make([]any, n)
		for i := range items {
			items[i] = float64(i + 1)
		}
		return &Split{ForEach: &ForEach{Items: func(*Scope) ([]any, error) { return items, nil }, Branch: Branch{Work: branch}}, Join: Join{Strategy: JoinAll}, Bulkhead: 3}
	}
	sum := once(func(_ context.Context, in *Invocation) (Result, error) {
		total := 0.0
		for _, b := range in.Scope.Result.([]any) {
			total += b.(map[string]any)["result"].(float64)
		}
		return Result{Value: total}, nil
	})
	square := once(func(_ context.Context, in *Invocation) (Result, error) {
		n := in.Scope.Item.(float64)
		return Result{Value: n * n}, nil
	})
	batch := line(does(split(10, square)), does(sum))
	end, _ := run(t, t.Context(), line(does(split(7, &Nested{Workflow: batch})), does(sum)), &Run{})
	wantOutcome(t, end, Succeeded)
	if end.Result != 7*385.0 {
		t.Errorf("total %v, want %v", end.Result, 7*385)
	}
}

func TestCancelDuringSplit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Minute, cancel)
		inner := line(does(once(after(time.Hour, noop))))
		w := line(does(&Split{Branches: []Branch{{Work: once(after(time.Hour, noop))}, {Work: &Nested{Workflow: inner}}, {Work: &Step{Task: fails("x"), Retry: &Retry{Retries: 9, Initial: time.Hour, MaxDelay: time.Hour, Multiplier: 1}}}}, Join: Join{Strategy: JoinAll}}))
		end, journal := run(t, ctx, w, &Run{})
		wantOutcome(t, end, Cancelled)
		wantError(t, end.Err, `cancelled in state "s1"`)
		if journal.count(AttemptCancelled) != 2 || journal.count(SplitDecided) != 0 {
			t.Error(journal.trace())
		}
	})
}

// A split that was decided before the run was cancelled has completed, and is undone.
func TestCancelAfterTheDecision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var s saga
		hedge := &Split{Join: Join{Strategy: JoinAny}, Branches: []Branch{{Work: once(after(time.Second, gives("r")))}, {Work: once(func(ctx context.Context, _ *Invocation) (Result, error) {
			<-ctx.Done() // the split is decided
			cancel()
			return Result{}, context.Cause(ctx)
		})}}}
		end, journal := run(t, ctx, line(&State{Work: hedge, Compensate: s.undo("hedge")}), &Run{})
		wantOutcome(t, end, Cancelled)
		if !strings.HasPrefix(s.String(), "undo hedge([map[branch:0") || journal.count(SplitDecided) != 1 {
			t.Errorf("undone: %s", &s)
		}
	})
}

// A branch that had to wait for its place begins when it gets it.
func TestEnteredOfBranches(t *testing.T) {
	for bulkhead, want := range map[int]string{0: "[0s 0s]", 1: "[0s 1m0s]"} {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			var entered []time.Duration
			begin := time.Now()
			look := once(after(time.Minute, func(_ context.Context, in *Invocation) (Result, error) {
				mu.Lock()
				defer mu.Unlock()
				entered = append(entered, in.Entered.Sub(begin))
				return Result{}, nil
			}))
			end, _ := run(t, t.Context(), line(does(&Split{Bulkhead: bulkhead, Join: Join{Strategy: JoinAll}, Branches: []Branch{{Work: look}, {Work: look}}})), &Run{})
			wantOutcome(t, end, Succeeded)
			if got := fmt.Sprint(entered); got != want {
				t.Errorf("bulkhead %d: entered %s, want %s", bulkhead, got, want)
			}
		})
	}
}
