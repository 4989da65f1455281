package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/schedulerd/schedulerd/internal/task/kindtest"
	"pgregory.net/rapid"
)

func ready(t rapid.TB, maxBytes int64, initial map[string]any) *Store {
	t.Helper()
	s := New(maxBytes, initial)
	if err := s.Setup(context.Background()); err != nil {
		t.Fatal(err)
	}
	return s
}

// values draws JSON-like values.
func values() *rapid.Generator[any] {
	leaf := rapid.OneOf(
		rapid.Just[any](nil),
		rapid.Map(rapid.Bool(), func(b bool) any { return b }),
		rapid.Map(rapid.IntRange(-3, 3), func(n int) any { return float64(n) }),
		rapid.Map(rapid.StringMatching("[a-c]{0,3}"), func(s string) any { return s }),
	)
	return rapid.OneOf(leaf,
		rapid.Map(rapid.SliceOfN(leaf, 0, 3), func(l []any) any { return l }),
		rapid.Map(rapid.MapOfN(rapid.StringMatching("[xy]"), leaf, 0, 2), func(m map[string]any) any { return m }),
	)
}

// The store does what a plain map would, never weighs more than it may, and nothing in it can be reached from outside.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const most = 600
		s, model := ready(t, most, nil), map[string]any{}
		key := rapid.SampledFrom([]string{"a", "ab", "b"})
		weight := func(m map[string]any) (sum int64) {
			for k, v := range m {
				sum += int64(len(k)) + weigh(v)
			}
			return sum
		}
		// try makes a change to the model unless it must be refused, and compares that with what the store said.
		try := func(err error, want error, change func(map[string]any)) {
			changed := maps.Clone(model)
			if want == nil {
				if change(changed); weight(changed) > most && weight(changed) > weight(model) {
					want = ErrFull
				}
			}
			if !errors.Is(err, want) {
				t.Fatalf("got %v, want %v", err, want)
			}
			if want == nil {
				model = changed
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				k, v := key.Draw(t, "key"), values().Draw(t, "value")
				_, was := model[k]
				found, err := s.Put(k, v)
				if found != was {
					t.Fatalf("found %v, want %v", found, was)
				}
				try(err, nil, func(m map[string]any) { m[k] = copyOut(v) })
				scribble(v)
			},
			"delete": func(t *rapid.T) {
				k := key.Draw(t, "key")
				_, was := model[k]
				if found := s.Delete(k); found != was {
					t.Fatalf("found %v, want %v", found, was)
				}
				delete(model, k)
			},
			"append": func(t *rapid.T) {
				k, v, keep := key.Draw(t, "key"), values().Draw(t, "value"), rapid.IntRange(0, 4).Draw(t, "keep")
				old, was := model[k]
				list, isList := old.([]any)
				var want error
				if was && !isList {
					want = ErrType
				}
				length, found, err := s.Append(k, v, keep)
				if found != was {
					t.Fatalf("found %v, want %v", found, was)
				}
				try(err, want, func(m map[string]any) {
					list = append(slices.Clone(list), copyOut(v))
					if keep > 0 && len(list) > keep {
						list = list[len(list)-keep:]
					}
					m[k] = list
				})
				if err == nil && length != len(list) {
					t.Fatalf("length %d, want %d", length, len(list))
				}
				scribble(v)
			},
			"increment": func(t *rapid.T) {
				k, by := key.Draw(t, "key"), float64(rapid.IntRange(-2, 2).Draw(t, "by"))
				old, was := model[k]
				number, isNumber := old.(float64)
				var want error
				if was && !isNumber {
					want = ErrType
				}
				sum, _, err := s.Increment(k, by)
				if err == nil && sum != number+by {
					t.Fatalf("sum %v, want %v", sum, number+by)
				}
				try(err, want, func(m map[string]any) { m[k] = number + by })
			},
			"compare and set": func(t *rapid.T) {
				k, v := key.Draw(t, "key"), values().Draw(t, "value")
				expected := rapid.OneOf(values(), rapid.Just(copyOut(model[k]))).Draw(t, "expected")
				var want error
				if !reflect.DeepEqual(model[k], expected) {
					want = ErrConflict
				}
				_, err := s.CompareAndSet(k, expected, v)
				try(err, want, func(m map[string]any) { m[k] = copyOut(v) })
				scribble(v)
			},
			"get": func(t *rapid.T) {
				k := key.Draw(t, "key")
				want, was := model[k]
				got, found := s.Get(k)
				if found != was || !reflect.DeepEqual(got, want) {
					t.Fatalf("got %v, %v; want %v, %v", got, found, want, was)
				}
				scribble(got)
			},
			"list": func(t *rapid.T) {
				prefix := rapid.SampledFrom([]string{"", "a", "ab", "z"}).Draw(t, "prefix")
				got := s.List(prefix)
				for k, want := range model {
					value, listed := got[k]
					if listed != strings.HasPrefix(k, prefix) || listed && !reflect.DeepEqual(value, want) {
						t.Fatalf("with prefix %q: %v, of %v", prefix, got, model)
					}
				}
				scribble(got)
			},
			"": func(t *rapid.T) {
				if got := s.List(""); !reflect.DeepEqual(got, model) {
					t.Fatalf("got %v, want %v", got, model)
				}
				if got := s.Weight(); got != weight(model) || got > most {
					t.Fatalf("weight %d, want %d", got, weight(model))
				}
			},
		})
	})
}

// scribble changes whatever can be changed in a value.
func scribble(v any) {
	switch v := v.(type) {
	case []any:
		for i := range v {
			scribble(v[i])
			v[i] = "scribbled"
		}
	case map[string]any:
		for k := range v {
			scribble(v[k])
		}
		v["scribbled"] = true
	}
}

func TestCopiedWeighs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := values().Draw(t, "value")
		c, weight, err := copied(v)
		if err != nil || !reflect.DeepEqual(c, v) || weight != weigh(v) {
			t.Fatalf("%v became %v of weight %d, want %d; %v", v, c, weight, weigh(v), err)
		}
	})
}

func TestRefusedValues(t *testing.T) {
	s := ready(t, 0, nil)
	var deep any
	for range maxDepth + 2 {
		deep = []any{deep}
	}
	for name, v := range map[string]any{
		"int": 1, "NaN": math.NaN(), "infinite": math.Inf(-1), "bytes": []byte("x"), "deep": deep,
		"in a list": []any{[]any{1}}, "in an object": map[string]any{"a": map[string]any{"b": []string{"x"}}},
	} {
		for operation, do := range map[string]func() error{
			"put":             func() error { _, err := s.Put("k", v); return err },
			"append":          func() error { _, _, err := s.Append("k", v, 0); return err },
			"compare and set": func() error { _, err := s.CompareAndSet("k", nil, v); return err },
		} {
			if err := do(); err == nil || !strings.HasPrefix(err.Error(), `key "k": `) {
				t.Errorf("%s of %s: got %v", operation, name, err)
			}
		}
	}
	if _, err := s.Put("n", math.MaxFloat64); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Increment("n", math.MaxFloat64); err == nil {
		t.Error("a sum that is infinite is no error")
	}
	if got := s.List(""); !reflect.DeepEqual(got, map[string]any{"n": math.MaxFloat64}) {
		t.Errorf("holds %v", got)
	}
}

func TestFull(t *testing.T) {
	s := ready(t, 100, map[string]any{"a": strings.Repeat("x", 50)}) // 1 + 16 + 50
	_, err := s.Put("b", strings.Repeat("y", 20))
	want := `the store is full: key "b" needs 37 bytes more, and 67 of 100 are taken; remove keys, bound lists with max_entries, or raise the store's max_bytes`
	if !errors.Is(err, ErrFull) || err.Error() != want {
		t.Errorf("got %v, want %v", err, want)
	}
	if _, err := s.Put("b", strings.Repeat("y", 16)); err != nil {
		t.Errorf("exactly full: %v", err)
	}
	if _, err := s.Put("a", "short"); err != nil {
		t.Errorf("lighter: %v", err)
	}
}

// A list of bounded length can be appended to forever in bounded memory.
func TestWindow(t *testing.T) {
	s := ready(t, 2000, nil)
	for i := range 10_000 {
		if length, _, err := s.Append("last", fmt.Sprintf("entry %04d", i), 10); err != nil || length != min(i+1, 10) {
			t.Fatal(i, length, err)
		}
	}
	value, _ := s.Get("last")
	if list := value.([]any); list[0] != "entry 9990" || list[9] != "entry 9999" {
		t.Errorf("got %v", list)
	}
	if array := cap(s.values["last"].([]any)); array > 100 {
		t.Errorf("the array behind 10 entries has room for %d", array)
	}
}

func TestConcurrent(t *testing.T) {
	s := ready(t, 0, nil)
	const workers, each = 8, 200
	var wait sync.WaitGroup
	won := make([]int, workers)
	for w := range workers {
		wait.Go(func() {
			for i := range each {
				_, _, _ = s.Increment("n", 1)
				_, _, _ = s.Append("list", map[string]any{"worker": float64(w)}, 0)
				if _, err := s.CompareAndSet("lock", nil, float64(w)); err == nil {
					won[w]++
					s.Delete("lock")
				}
				scribble(s.List(""))
				_, _ = s.Put(fmt.Sprint("own", w), float64(i))
			}
		})
	}
	wait.Wait()
	n, _ := s.Get("n")
	list, _ := s.Get("list")
	if n != float64(workers*each) || len(list.([]any)) != workers*each {
		t.Errorf("%v increments and %d entries of %d", n, len(list.([]any)), workers*each)
	}
	for _, entry := range list.([]any) {
		if len(entry.(map[string]any)) != 1 {
			t.Fatalf("an entry was changed from outside: %v", entry)
		}
	}
	if slices.Max(won) == 0 {
		t.Error("no one ever had the lock")
	}
}

func TestLife(t *testing.T) {
	s := ready(t, 0, map[string]any{"a": []any{1.0}})
	if _, _, err := s.Append("a", 2.0, 0); err != nil {
		t.Fatal(err)
	}
	if err := s.Teardown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, found := s.Get("a"); found {
		t.Error("it is there after the teardown")
	}
	if _, err := s.Put("a", 1.0); !errors.Is(err, errNotSetUp) {
		t.Errorf("put after the teardown: %v", err)
	}
	if err := s.Setup(t.Context()); err != nil {
		t.Fatal(err)
	}
	if a, _ := s.Get("a"); !reflect.DeepEqual(a, []any{1.0}) {
		t.Errorf("the second life begins with %v", a)
	}
}

func TestResource(t *testing.T) {
	set := kindtest.SetUp(t, ResourceKind, map[string]string{"s": `{"store": {"initial": {"a": [1, {"b": null}], "c": "${'x' + 'y'}"}, "max_bytes": "1000"}}`})
	s := set.Get("s").(*Store)
	if got, want := s.List(""), map[string]any{"a": []any{1.0, map[string]any{"b": nil}}, "c": "xy"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for definition, want := range map[string]string{
		`{"store": {"initial": {"a": "xxxxxxxxxx"}, "max_bytes": "20"}}`: `store.initial: the store is full: key "a" needs 27 bytes more`,
		`{"store": {"initial": {"a": "${params.x}"}}}`:                   `store.initial["a"]: column 3: `,
		`{"store": {"initial": {"a": "${1/0}"}}}`:                        `store.initial: `,
	} {
		if _, err := kindtest.CompileResource(t, ResourceKind, kindtest.Config(), definition); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: got %v, want %s…", definition, err, want)
		}
	}
	if _, err := kindtest.CompileResource(t, ResourceKind, kindtest.Config(), `{"store": {"initial": {"a": 1}, "max_bytes": "18446744073709551615"}}`); err != nil {
		t.Errorf("without a bound to speak of: %v", err)
	}
}
