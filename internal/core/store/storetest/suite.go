package storetest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/schedulerd/schedulerd/internal/core/store"
)

// Open opens the store under test. Called again after Close, it opens the same store, with what was committed if the store is durable.
type Open func() (store.Store, error)

// Factory makes the Open of a new, empty store. What has to be torn down goes to t.Cleanup.
type Factory func(t *testing.T) Open

// Expirer is what sessions of a store under test also have: Expire takes the right to write away without asking, as the end of a lease does.
type Expirer interface{ Expire() }

// KeysVariable names the environment variable for the size of the test with many keys; 100 000 if it is not set.
const KeysVariable = "STORETEST_KEYS"

// Run runs the suite.
func Run(t *testing.T, factory Factory) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, Open)
	}{
		{"Keys", testKeys},
		{"Scan", testScan},
		{"ScanStops", testScanStops},
		{"ShardsAreApart", testShardsAreApart},
		{"LastChangeCounts", testLastChangeCounts},
		{"SlicesAreNotKept", testSlicesAreNotKept},
		{"Revisions", testRevisions},
		{"SameSeqTwice", testSameSeqTwice},
		{"Gaps", testGaps},
		{"Acquire", testAcquire},
		{"NotOwned", testNotOwned},
		{"Zombie", testZombie},
		{"SessionClose", testSessionClose},
		{"ZombieUnderLoad", testZombieUnderLoad},
		{"ReadersSeeWholeGroups", testReadersSeeWholeGroups},
		{"LargeValues", testLargeValues},
		{"ManyKeys", testManyKeys},
		{"Context", testContext},
		{"Close", testClose},
		{"CloseDuringCommits", testCloseDuringCommits},
		{"Reopen", testReopen},
		{"OpenAndClose", testOpenAndClose},
		{"Model", testModel},
	} {
		t.Run(test.name, func(t *testing.T) {
			before := goleak.IgnoreCurrent()
			t.Cleanup(func() { goleak.VerifyNone(t, before) }) // the first Cleanup runs last, when the stores are closed
			test.run(t, factory(t))
		})
	}
}

func testKeys(t *testing.T, open Open) {
	s, w := begin(t, open, 3)
	for _, step := range []struct {
		changes []store.Change
		want    map[string]string
	}{
		{[]store.Change{set(3, "a", "1"), set(3, "b", "2")}, map[string]string{"a": "1", "b": "2"}},
		{[]store.Change{set(3, "a", "3"), remove(3, "b")}, map[string]string{"a": "3"}},
		{[]store.Change{remove(3, "never there")}, map[string]string{"a": "3"}},
		{[]store.Change{{Shard: 3, Key: []byte("a"), Value: []byte{}}}, map[string]string{"a": ""}},
		{[]store.Change{set(3, "", "empty key"), set(3, "\x00\xff", "\x00")}, map[string]string{"": "empty key", "\x00\xff": "\x00", "a": ""}},
		{nil, map[string]string{"": "empty key", "\x00\xff": "\x00", "a": ""}},
	} {
		w.commit(t, step.changes...)
		for key, value := range step.want {
			got, err := s.Get(t.Context(), 3, []byte(key))
			if err != nil || got == nil || string(got) != value {
				t.Errorf("Get(%q) = %#v, %v, want %q", key, got, err, value)
			}
		}
		if got := content(t, s, 3); !equal(got, step.want) {
			t.Errorf("content %q, want %q", got, step.want)
		}
	}
	if got, err := s.Get(t.Context(), 3, []byte("b")); got != nil || err != nil {
		t.Errorf("Get of a deleted key = %q, %v", got, err)
	}
	if got, err := s.Get(t.Context(), 4, []byte("a")); got != nil || err != nil {
		t.Errorf("Get in a shard without keys = %q, %v", got, err)
	}
}

func testScan(t *testing.T, open Open) {
	s, w := begin(t, open, 3, 4)
	keys := []string{"", "a", "a\x00", "a\xfe", "a\xff", "a\xff\x00", "a\xff\xff", "b", "ba", "bb", "c", "\xff", "\xff\xff", "\xff\xff\x01"}
	var changes []store.Change
	for _, key := range keys {
		changes = append(changes, set(3, key, "value of "+key))
	}
	w.commit(t, append(changes, set(4, "a", "another shard"))...)
	for _, prefix := range []string{"", "a", "a\xff", "a\xff\xff", "b", "bz", "c", "zz", "\xff", "\xff\xff", "\xff\xff\xff"} {
		var want []string
		for _, key := range keys {
			if bytes.HasPrefix([]byte(key), []byte(prefix)) {
				want = append(want, key)
			}
		}
		slices.Sort(want)
		for _, reverse := range []bool{false, true} {
			if reverse {
				slices.Reverse(want)
			}
			var got []string
			err := s.Scan(t.Context(), 3, []byte(prefix), reverse, func(key, value []byte) bool {
				if string(value) != "value of "+string(key) {
					t.Errorf("%q has %q", key, value)
				}
				got = append(got, string(key))
				return true
			})
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("Scan(%q, reverse %v) = %q, %v, want %q", prefix, reverse, got, err, want)
			}
		}
	}
}

func testScanStops(t *testing.T, open Open) {
	s, w := begin(t, open, 3)
	w.commit(t, set(3, "a", "1"), set(3, "b", "2"), set(3, "c", "3"))
	for _, test := range []struct {
		reverse bool
		want    string
	}{{false, "ab"}, {true, "cb"}} {
		got := ""
		err := s.Scan(t.Context(), 3, nil, test.reverse, func(key, _ []byte) bool {
			got += string(key)
			return len(got) < 2
		})
		if err != nil || got != test.want {
			t.Errorf("Scan(reverse %v) saw %q, %v, want %q", test.reverse, got, err, test.want)
		}
	}
	// What a scan was given is a view: commits and reads in the middle of it are fine and change nothing.
	got := ""
	err := s.Scan(t.Context(), 3, nil, false, func(key, _ []byte) bool {
		got += string(key)
		w.commit(t, remove(3, "b"), set(3, "bb", "4"))
		if value, err := s.Get(t.Context(), 3, []byte("bb")); err != nil || string(value) != "4" {
			t.Errorf("Get in a scan = %q, %v", value, err)
		}
		return true
	})
	if err != nil || got != "abc" {
		t.Errorf("a scan saw %q, %v, want abc", got, err)
	}
}

func testShardsAreApart(t *testing.T, open Open) {
	shards := []store.Shard{0, 1, 255, 256, 257, 0xfffe, 0xffff}
	s, w := begin(t, open, shards...)
	var changes []store.Change
	for _, shard := range shards {
		changes = append(changes, set(shard, "k", fmt.Sprint(shard)), set(shard, "\xff\xff\xff", "last"))
	}
	w.commit(t, changes...)
	for _, shard := range shards {
		if got, want := content(t, s, shard), map[string]string{"k": fmt.Sprint(shard), "\xff\xff\xff": "last"}; !equal(got, want) {
			t.Errorf("shard %d holds %q, want %q", shard, got, want)
		}
	}
}

func testLastChangeCounts(t *testing.T, open Open) {
	s, w := begin(t, open, 3)
	w.commit(t, set(3, "a", "1"), set(3, "a", "2"), set(3, "b", "1"), remove(3, "b"), remove(3, "c"), set(3, "c", "1"))
	if got, want := content(t, s, 3), map[string]string{"a": "2", "c": "1"}; !equal(got, want) {
		t.Errorf("content %q, want %q", got, want)
	}
}

func testSlicesAreNotKept(t *testing.T, open Open) {
	s, w := begin(t, open, 3)
	key, value := []byte("key"), []byte("value")
	w.commit(t, store.Change{Shard: 3, Key: key, Value: value})
	copy(key, "xxx")
	copy(value, "xxxxx")
	got, err := s.Get(t.Context(), 3, []byte("key"))
	if err != nil || string(got) != "value" {
		t.Fatalf("Get = %q, %v after the caller's slices changed", got, err)
	}
	copy(got, "yyyyy")
	if want := map[string]string{"key": "value"}; !equal(content(t, s, 3), want) {
		t.Errorf("content %q, want %q after a reader's slice changed", content(t, s, 3), want)
	}
}

func testRevisions(t *testing.T, open Open) {
	_, w := begin(t, open, 3)
	last := w.session.Revision()
	for i := range 20 {
		revision := w.commit(t, set(3, "k", fmt.Sprint(i)))
		if revision <= last {
			t.Fatalf("revision %d after %d", revision, last)
		}
		if got := w.session.Revision(); got != revision {
			t.Fatalf("the session knows revision %d, committed %d", got, revision)
		}
		last = revision
	}
}

func testSameSeqTwice(t *testing.T, open Open) {
	s, w := begin(t, open, 3)
	first := w.commit(t, set(3, "k", "1"))
	second := w.commit(t, set(3, "k", "2"))
	w.seq--
	// The content of a repeated group does not count: it was applied before, or it is the same.
	if again := w.commit(t, set(3, "k", "3"), set(3, "other", "3")); again != second {
		t.Errorf("the same Seq again gave revision %d, want %d", again, second)
	}
	if got, want := content(t, s, 3), map[string]string{"k": "2"}; !equal(got, want) {
		t.Errorf("content %q, want %q", got, want)
	}
	if third := w.commit(t, set(3, "k", "4")); third <= second || second <= first {
		t.Errorf("revisions %d, %d, %d do not grow", first, second, third)
	}
}

func testGaps(t *testing.T, open Open) {
	s, w := begin(t, open, 3)
	for _, seq := range []uint64{0, 2, 1 << 63} {
		w.refused(t, store.ErrSequence, store.Group{Seq: seq, Changes: []store.Change{set(3, "k", "gap")}})
	}
	w.commit(t, set(3, "k", "1"))
	w.commit(t, set(3, "k", "2"))
	w.commit(t, set(3, "k", "3"))
	for _, seq := range []uint64{0, 1, 2, 5} {
		w.refused(t, store.ErrSequence, store.Group{Seq: seq, Changes: []store.Change{set(3, "k", "gap")}})
	}
	if got, want := content(t, s, 3), map[string]string{"k": "3"}; !equal(got, want) {
		t.Errorf("content %q, want %q", got, want)
	}
	w.commit(t, set(3, "k", "4"))
}

func testAcquire(t *testing.T, open Open) {
	s := opened(t, open)
	one, other := joined(t, s), joined(t, s)
	first := one.acquire(t, 1, 2, 3)
	if got := shardsOf(first); !slices.Equal(got, []store.Shard{1, 2, 3}) {
		t.Fatalf("acquired %v, want 1 2 3", got)
	}
	if again := one.acquire(t, 2, 1, 2); !slices.Equal(again, []store.Owned{first[1], first[0]}) {
		t.Errorf("acquired again: %v, want the same generations as in %v", again, first)
	}
	if got := shardsOf(other.acquire(t, 3, 4, 1)); !slices.Equal(got, []store.Shard{4}) {
		t.Fatalf("the other session got %v, want only 4: the rest is owned", got)
	}
	if err := one.session.Release(t.Context(), []store.Shard{2, 3, 4, 99}); err != nil {
		t.Fatal(err)
	}
	moved := other.acquire(t, 1, 2, 3)
	if got := shardsOf(moved); !slices.Equal(got, []store.Shard{2, 3}) {
		t.Fatalf("the other session got %v, want 2 3 that were released", got)
	}
	for i, owned := range moved {
		if want := first[i+1].Generation + 1; owned.Generation != want {
			t.Errorf("shard %d has generation %d after it moved, want %d", owned.Shard, owned.Generation, want)
		}
	}
	if owned := other.acquire(t, 4); len(owned) != 1 {
		t.Errorf("a release by another session took shard 4 away")
	}
	if owned := one.acquire(t); len(owned) != 0 {
		t.Errorf("acquired %v, asked for nothing", owned)
	}
}

func testNotOwned(t *testing.T, open Open) {
	s, w := begin(t, open, 3)
	w.refused(t, store.ErrFenced, store.Group{Seq: 1, Changes: []store.Change{set(3, "k", "1"), set(4, "k", "1")}})
	w.refused(t, store.ErrFenced, store.Group{Seq: 1, Changes: []store.Change{set(4, "k", "1"), set(3, "k", "1")}})
	for _, shard := range []store.Shard{3, 4} {
		if got := content(t, s, shard); len(got) != 0 {
			t.Errorf("shard %d holds %q of a refused group", shard, got)
		}
	}
	w.commit(t, set(3, "k", "2"))
	if err := w.session.Release(t.Context(), []store.Shard{3}); err != nil {
		t.Fatal(err)
	}
	w.refused(t, store.ErrFenced, store.Group{Seq: 2, Changes: []store.Change{set(3, "k", "3")}})
	if w.session.Err() != nil {
		t.Errorf("a refused commit ended the session: %v", w.session.Err())
	}
}

func testZombie(t *testing.T, open Open) {
	s, zombie := begin(t, open, 3)
	zombie.commit(t, set(3, "k", "1"))
	before := zombie.acquire(t, 3)[0].Generation
	zombie.session.(Expirer).Expire()

	heir := joined(t, s)
	owned := heir.acquire(t, 3)
	if len(owned) != 1 || owned[0].Generation != before+1 {
		t.Fatalf("the heir got %v, want shard 3 with generation %d", owned, before+1)
	}
	heir.commit(t, set(3, "k", "2"))
	select {
	case <-zombie.session.Done():
	default:
		t.Error("Done of the expired session is open")
	}
	if err := zombie.session.Err(); !errors.Is(err, store.ErrFenced) {
		t.Errorf("Err of the expired session is %v, want ErrFenced", err)
	}
	for _, g := range []store.Group{
		{Seq: 1, Changes: []store.Change{set(3, "k", "1")}}, // even what it had committed
		{Seq: 2, Changes: []store.Change{set(3, "k", "3")}},
		{Seq: 2},
	} {
		zombie.refused(t, store.ErrFenced, g)
	}
	if _, err := zombie.session.Acquire(t.Context(), []store.Shard{3, 4}); !errors.Is(err, store.ErrFenced) {
		t.Errorf("Acquire of the expired session: %v, want ErrFenced", err)
	}
	if err := zombie.session.Release(t.Context(), []store.Shard{3}); !errors.Is(err, store.ErrFenced) {
		t.Errorf("Release of the expired session: %v, want ErrFenced", err)
	}
	if err := zombie.session.Close(t.Context()); err != nil {
		t.Errorf("Close of the expired session: %v", err)
	}
	heir.commit(t, set(3, "k", "4"))
	if got, want := content(t, s, 3), map[string]string{"k": "4"}; !equal(got, want) {
		t.Errorf("content %q, want %q", got, want)
	}
}

func testSessionClose(t *testing.T, open Open) {
	s, w := begin(t, open, 3)
	w.commit(t, set(3, "k", "1"))
	if w.session.Err() != nil {
		t.Fatalf("a living session has Err %v", w.session.Err())
	}
	for range 2 {
		if err := w.session.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	<-w.session.Done()
	if err := w.session.Err(); !errors.Is(err, store.ErrClosed) {
		t.Errorf("Err is %v, want ErrClosed", err)
	}
	w.refused(t, store.ErrClosed, store.Group{Seq: 2, Changes: []store.Change{set(3, "k", "2")}})
	heir := joined(t, s)
	if owned := heir.acquire(t, 3); len(owned) != 1 {
		t.Errorf("the shards of a closed session are not free")
	}
	heir.commit(t, set(3, "k", "3"))
}

// Sessions take a shard from each other while they commit to it. Each appends to a list after what it found when it took over, so an
// accepted commit of a fenced session, or a takeover that did not wait for the commit under way, writes an entry twice.
func testZombieUnderLoad(t *testing.T, open Open) {
	s := opened(t, open)
	const takeovers, shard = 30, store.Shard(3)
	place := func(n int) string { return fmt.Sprintf("%08d", n) }
	var mu sync.Mutex
	acknowledged := map[string]string{}
	var zombies sync.WaitGroup
	for i := range takeovers {
		w := joined(t, s)
		if owned := w.acquire(t, shard); len(owned) != 1 {
			t.Fatal("the shard of an expired session is not free")
		}
		begin := len(content(t, s, shard))
		zombies.Go(func() {
			for n := begin; ; n++ {
				w.seq++
				_, err := w.session.Commit(context.Background(), store.Group{Seq: w.seq, Changes: []store.Change{set(shard, place(n), fmt.Sprint(i))}})
				if err != nil {
					if !errors.Is(err, store.ErrFenced) {
						t.Errorf("a zombie got %v, want ErrFenced", err)
					}
					return
				}
				mu.Lock()
				if other, twice := acknowledged[place(n)]; twice {
					t.Errorf("entry %d of session %s was acknowledged to session %d too", n, other, i)
				}
				acknowledged[place(n)] = fmt.Sprint(i)
				mu.Unlock()
				if n == begin+5 {
					// The next session takes over while this one goes on.
					w.session.(Expirer).Expire()
				}
			}
		})
		<-w.session.Done()
	}
	zombies.Wait()
	if got := content(t, s, shard); !equal(got, acknowledged) {
		t.Errorf("the store holds %v, acknowledged was %v", got, acknowledged)
	}
}

func testReadersSeeWholeGroups(t *testing.T, open Open) {
	s, w := begin(t, open, 3)
	const keys, groups = 50, 200
	group := func(n int) []store.Change {
		var changes []store.Change
		for k := range keys {
			changes = append(changes, set(3, fmt.Sprintf("%02d", k), fmt.Sprint(n)))
		}
		return changes
	}
	w.commit(t, group(0)...)
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for r := range 4 {
		readers.Go(func() {
			newest := 0
			for done := false; !done; {
				select {
				case <-stop:
					done = true
				default:
				}
				seen := map[string]int{}
				value := ""
				err := s.Scan(context.Background(), 3, nil, r%2 == 0, func(_, v []byte) bool {
					value = string(v)
					seen[value]++
					return true
				})
				if err != nil || seen[value] != keys {
					t.Errorf("a scan saw %v, %v, want %d times the same", seen, err, keys)
					return
				}
				n, _ := strconv.Atoi(value)
				if n < newest {
					t.Errorf("a scan saw group %d after %d", n, newest)
					return
				}
				newest = n
				if v, err := s.Get(context.Background(), 3, []byte("07")); err != nil || v == nil {
					t.Errorf("Get = %q, %v", v, err)
					return
				} else if n, _ := strconv.Atoi(string(v)); n < newest {
					t.Errorf("Get saw group %d after %d", n, newest)
					return
				}
			}
		})
	}
	for n := 1; n <= groups; n++ {
		w.commit(t, group(n)...)
	}
	close(stop)
	readers.Wait()
}

func testLargeValues(t *testing.T, open Open) {
	s, w := begin(t, open, 3)
	large := func(n int) []byte {
		value := make([]byte, 1<<20)
		for i := range value {
			value[i] = byte(i * n / 7)
		}
		return value
	}
	const n = 20
	for i := range n {
		w.commit(t, store.Change{Shard: 3, Key: []byte{byte(i)}, Value: large(i)})
	}
	var all []store.Change
	for i := range n {
		all = append(all, store.Change{Shard: 3, Key: []byte{byte(i)}, Value: large(i + 1)})
	}
	w.commit(t, all...)
	check := func(s store.Store) {
		t.Helper()
		for i := range n {
			got, err := s.Get(t.Context(), 3, []byte{byte(i)})
			if err != nil || !bytes.Equal(got, large(i+1)) {
				t.Fatalf("value %d came back wrong (%d bytes, %v)", i, len(got), err)
			}
		}
	}
	check(s)
	if s.Durable() {
		check(reopened(t, s, open))
	}
}

func testManyKeys(t *testing.T, open Open) {
	keys := 100_000
	if set := os.Getenv(KeysVariable); set != "" {
		n, err := strconv.Atoi(set)
		if err != nil || n <= 0 {
			t.Fatalf("%s=%q is not a number of keys", KeysVariable, set)
		}
		keys = n
	}
	const shards = 8
	all := make([]store.Shard, shards)
	for i := range all {
		all[i] = store.Shard(i)
	}
	s, w := begin(t, open, all...)
	change := func(i, round int) store.Change {
		key := binary.BigEndian.AppendUint64(nil, uint64(i)*0x9e3779b97f4a7c15)
		return store.Change{Shard: store.Shard(i % shards), Key: key, Value: fmt.Appendf(nil, "%d %d %0100d", i, round, 0)}
	}
	var changes []store.Change
	flush := func() {
		w.commit(t, changes...)
		changes = changes[:0]
	}
	for i := range keys {
		if changes = append(changes, change(i, 1)); len(changes) == 5000 {
			flush()
		}
	}
	// Then every tenth is written again and every seventh removed.
	for i := range keys {
		if i%10 == 0 {
			changes = append(changes, change(i, 2))
		}
		if i%7 == 0 {
			c := change(i, 0)
			c.Value = nil
			changes = append(changes, c)
		}
		if len(changes) >= 5000 {
			flush()
		}
	}
	flush()
	check := func(s store.Store) {
		t.Helper()
		count := 0
		for _, shard := range all {
			var last []byte
			err := s.Scan(t.Context(), shard, nil, false, func(key, value []byte) bool {
				if last != nil && bytes.Compare(last, key) >= 0 {
					t.Errorf("shard %d: %x comes after %x", shard, key, last)
					return false
				}
				last = append(last[:0], key...)
				var i, round int
				if _, err := fmt.Sscan(string(value[:len(value)-101]), &i, &round); err != nil {
					t.Errorf("a value came back wrong: %v", err)
					return false
				}
				want := change(i, 1)
				if i%10 == 0 {
					want = change(i, 2)
				}
				if i%7 == 0 || want.Shard != shard || !bytes.Equal(key, want.Key) || !bytes.Equal(value, want.Value) {
					t.Errorf("shard %d has %x = %q", shard, key, value)
					return false
				}
				count++
				return true
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		if want := keys - (keys+6)/7; count != want {
			t.Fatalf("%d keys, want %d", count, want)
		}
	}
	check(s)
	if s.Durable() {
		check(reopened(t, s, open))
	}
}

func testContext(t *testing.T, open Open) {
	s, w := begin(t, open, 3)
	var changes []store.Change
	for i := range 5000 {
		changes = append(changes, set(3, fmt.Sprintf("%05d", i), "v"))
	}
	w.commit(t, changes...)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for name, call := range map[string]func() error{
		"Join":    func() error { _, err := s.Join(gone); return err },
		"Get":     func() error { _, err := s.Get(gone, 3, []byte("k")); return err },
		"Scan":    func() error { return s.Scan(gone, 3, nil, false, func(_, _ []byte) bool { return true }) },
		"Acquire": func() error { _, err := w.session.Acquire(gone, []store.Shard{4}); return err },
		"Release": func() error { return w.session.Release(gone, []store.Shard{3}) },
		"Commit":  func() error { _, err := w.session.Commit(gone, store.Group{Seq: 2}); return err },
	} {
		if err := call(); !errors.Is(err, context.Canceled) {
			t.Errorf("%s with a cancelled context: %v", name, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	n := 0
	err := s.Scan(ctx, 3, nil, false, func(_, _ []byte) bool {
		n++
		cancel()
		return true
	})
	if !errors.Is(err, context.Canceled) || n == len(changes) {
		t.Errorf("a scan whose context ended saw %d keys, %v", n, err)
	}
	w.commit(t, set(3, "k", "1")) // a commit that was given up before it began counts for nothing
}

func testClose(t *testing.T, open Open) {
	s, w := begin(t, open, 3)
	w.commit(t, set(3, "k", "1"))
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatalf("Close: %v", err)
		}
	}
	<-w.session.Done()
	if err := w.session.Err(); !errors.Is(err, store.ErrClosed) {
		t.Errorf("the session ended with %v, want ErrClosed", err)
	}
	for name, call := range map[string]func() error{
		"Join":    func() error { _, err := s.Join(t.Context()); return err },
		"Get":     func() error { _, err := s.Get(t.Context(), 3, []byte("k")); return err },
		"Scan":    func() error { return s.Scan(t.Context(), 3, nil, false, func(_, _ []byte) bool { return true }) },
		"Acquire": func() error { _, err := w.session.Acquire(t.Context(), []store.Shard{4}); return err },
		"Release": func() error { return w.session.Release(t.Context(), []store.Shard{3}) },
		"Commit":  func() error { _, err := w.session.Commit(t.Context(), store.Group{Seq: 2}); return err },
	} {
		if err := call(); !errors.Is(err, store.ErrClosed) {
			t.Errorf("%s after Close: %v, want ErrClosed", name, err)
		}
	}
	if err := w.session.Close(t.Context()); err != nil {
		t.Errorf("closing the session of a closed store: %v", err)
	}
	if s.Instance() == "" || s.Name() == "" {
		t.Error("a closed store has lost its name")
	}
}

// Close comes in the middle of commits and reads: what was acknowledged is there, and everybody is told.
func testCloseDuringCommits(t *testing.T, open Open) {
	for range 5 {
		s, w := begin(t, open, 3)
		before := len(content(t, s, 3))
		started := make(chan struct{})
		var all sync.WaitGroup
		acknowledged := 0
		all.Go(func() {
			for i := before; ; i++ {
				w.seq++
				_, err := w.session.Commit(context.Background(), store.Group{Seq: w.seq, Changes: []store.Change{set(3, fmt.Sprintf("%08d", i), "v")}})
				if err != nil {
					if !errors.Is(err, store.ErrClosed) {
						t.Errorf("Commit during Close: %v", err)
					}
					return
				}
				acknowledged++
				if acknowledged == 20 {
					close(started)
				}
			}
		})
		all.Go(func() {
			for {
				err := s.Scan(context.Background(), 3, nil, false, func(_, _ []byte) bool { return true })
				if err != nil {
					if !errors.Is(err, store.ErrClosed) {
						t.Errorf("Scan during Close: %v", err)
					}
					return
				}
			}
		})
		<-started
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		all.Wait()
		if s.Durable() {
			again := opened(t, open)
			if got := len(content(t, again, 3)); got != before+acknowledged {
				t.Fatalf("%d keys after Close and Open, want %d", got, before+acknowledged)
			}
			if err := again.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func testReopen(t *testing.T, open Open) {
	s, w := begin(t, open, 3, 4)
	if !s.Durable() {
		other := opened(t, open)
		if other.Instance() == s.Instance() {
			t.Error("two stores have one instance")
		}
		return
	}
	instance := s.Instance()
	var generation uint64
	var revision store.Revision
	want := map[string]string{}
	for round := range 5 {
		if s.Instance() != instance || instance == "" {
			t.Fatalf("instance %q, was %q", s.Instance(), instance)
		}
		if w.session.Revision() < revision {
			t.Fatalf("round %d begins with revision %d, %d was committed", round, w.session.Revision(), revision)
		}
		for _, owned := range w.acquire(t, 3, 4) {
			if owned.Generation != generation+1 {
				t.Fatalf("round %d: shard %d has generation %d, want %d", round, owned.Shard, owned.Generation, generation+1)
			}
		}
		generation++
		if got := content(t, s, 3); !equal(got, want) {
			t.Fatalf("round %d begins with %q, want %q", round, got, want)
		}
		for i := range 10 {
			key, value := fmt.Sprint(i), fmt.Sprint(round)
			next := w.commit(t, set(3, key, value), set(4, key, value))
			if next <= revision {
				t.Fatalf("revision %d after %d", next, revision)
			}
			revision, want[key] = next, value
		}
		if round%2 == 1 {
			w.commit(t, remove(3, "5"))
			delete(want, "5")
		}
		old := w.session
		s = reopened(t, s, open)
		w = joined(t, s)
		w.acquire(t, 3, 4)
		if _, err := old.Commit(t.Context(), store.Group{Seq: 100}); err == nil {
			t.Fatal("a session of the closed store still commits")
		}
	}
}

func testOpenAndClose(t *testing.T, open Open) {
	for i := range 20 {
		s, err := open()
		if err != nil {
			t.Fatal(err)
		}
		if i%3 > 0 {
			w := joined(t, s)
			w.acquire(t, 3)
			w.commit(t, set(3, fmt.Sprint(i), "v"))
			if i%3 > 1 {
				if err := w.session.Close(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	s := opened(t, open)
	if got := len(content(t, s, 3)); s.Durable() && got != 13 {
		t.Errorf("%d keys, want 13", got)
	}
}

// writer is a session and its place in the sequence.
type writer struct {
	session store.Session
	seq     uint64
}

// begin opens the store and takes some shards.
func begin(t *testing.T, open Open, shards ...store.Shard) (store.Store, *writer) {
	t.Helper()
	s := opened(t, open)
	w := joined(t, s)
	if owned := w.acquire(t, shards...); len(owned) != len(shards) {
		t.Fatalf("acquired %v of %v in a store without owners", owned, shards)
	}
	return s, w
}

func opened(t *testing.T, open Open) store.Store {
	t.Helper()
	s, err := open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func reopened(t *testing.T, s store.Store, open Open) store.Store {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return opened(t, open)
}

func joined(t *testing.T, s store.Store) *writer {
	t.Helper()
	session, err := s.Join(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return &writer{session: session}
}

func (w *writer) acquire(t *testing.T, shards ...store.Shard) []store.Owned {
	t.Helper()
	owned, err := w.session.Acquire(t.Context(), shards)
	if err != nil {
		t.Fatal(err)
	}
	return owned
}

func (w *writer) commit(t *testing.T, changes ...store.Change) store.Revision {
	t.Helper()
	w.seq++
	revision, err := w.session.Commit(t.Context(), store.Group{Seq: w.seq, Changes: changes})
	if err != nil {
		t.Fatal(err)
	}
	return revision
}

func (w *writer) refused(t *testing.T, want error, g store.Group) {
	t.Helper()
	if revision, err := w.session.Commit(t.Context(), g); !errors.Is(err, want) {
		t.Errorf("commit %d gave revision %d, %v, want %v", g.Seq, revision, err, want)
	}
}

func set(shard store.Shard, key, value string) store.Change {
	return store.Change{Shard: shard, Key: []byte(key), Value: []byte(value)}
}

func remove(shard store.Shard, key string) store.Change {
	return store.Change{Shard: shard, Key: []byte(key)}
}

func content(t *testing.T, s store.Store, shard store.Shard) map[string]string {
	t.Helper()
	got := map[string]string{}
	err := s.Scan(t.Context(), shard, nil, false, func(key, value []byte) bool {
		got[string(key)] = string(value)
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func equal(a, b map[string]string) bool {
	if len(a) != len(b) {
		return false
	}
	for key, value := range a {
		if other, ok := b[key]; !ok || other != value {
			return false
		}
	}
	return true
}

func shardsOf(owned []store.Owned) []store.Shard {
	var shards []store.Shard
	for _, o := range owned {
		shards = append(shards, o.Shard)
	}
	return shards
}
