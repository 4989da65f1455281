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

	schedulerdv1 "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"github.com/schedulerd/schedulerd/internal/core/resource"
	"github.com/schedulerd/schedulerd/internal/task"
)

// DefaultMaxBytes bounds the weight of a store that sets no bound itself.
const DefaultMaxBytes = 64 << 20

// ResourceKind is a store.
var ResourceKind = task.ResourceKind{Field: "store", New: newResource}

func newResource(r *schedulerdv1.Resource, env *task.Env) (resource.Resource, error) {
	initial, err := env.Object("store.initial", r.GetStore().GetInitial()).Eval(nil)
	if err != nil {
		env.Faultf("store.initial", "%v", err)
		return nil, nil
	}
	s := New(int64(min(r.GetStore().GetMaxBytes(), math.MaxInt64)), initial.(map[string]any))
	if err := s.Setup(context.Background()); err != nil { // so that what cannot be set up is told at load
		env.Faultf("store.initial", "%v", err)
	}
	return s, s.Teardown(context.Background())
}

// The ways an operation fails.
var (
	ErrFull     = errors.New("the store is full")
	ErrConflict = errors.New("the store holds another value")
	ErrType     = errors.New("the value is of another type")
	ErrMissing  = errors.New("there is no such key")
	ErrTooLarge = errors.New("the value is too large")
	ErrOutside  = errors.New("the file is not below the daemon's directory")
	errNotSetUp = errors.New("the store is not set up")
)

// Store is a key-value store. It is safe for concurrent use, after Setup and until Teardown.
type Store struct {
	max     int64
	initial map[string]any

	mu     sync.RWMutex
	values map[string]any
	weight int64
}

// New gives a store that holds initial once it is set up. A bound of 0 is the default.
func New(maxBytes int64, initial map[string]any) *Store {
	if maxBytes == 0 {
		maxBytes = DefaultMaxBytes
	}
	return &Store{max: maxBytes, initial: initial}
}

// Setup gives the store its first values.
func (s *Store) Setup(context.Context) error {
	s.mu.Lock()
	s.values, s.weight = map[string]any{}, 0
	s.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(s.initial)) {
		if _, err := s.Put(key, s.initial[key]); err != nil {
			return err
		}
	}
	return nil
}

// Teardown forgets all values.
func (s *Store) Teardown(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.values = nil
	return nil
}

// Get gives the value of a key; nil if there is none.
func (s *Store) Get(key string) (value any, found bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	value, found = s.values[key]
	return copyOut(value), found
}

// Put sets a key, and says whether it was there.
func (s *Store) Put(key string, value any) (found bool, err error) {
	value, weight, err := copied(value)
	if err != nil {
		return false, fmt.Errorf("key %q: %w", key, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.set(key, value, weight)
}

// Delete removes a key, and says whether it was there.
func (s *Store) Delete(key string) (found bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	value, found := s.values[key]
	if found {
		s.weight -= int64(len(key)) + weigh(value)
		delete(s.values, key)
	}
	return found
}

// Append adds a value to a list, which is made if it is missing. If most is not 0, only so many of the last entries are kept.
func (s *Store) Append(key string, value any, most int) (length int, found bool, err error) {
	value, weight, err := copied(value)
	if err != nil {
		return 0, false, fmt.Errorf("key %q: %w", key, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	old, found := s.values[key]
	list, isList := old.([]any)
	if found && !isList {
		return 0, true, fmt.Errorf("%w: key %q holds %s, not a list", ErrType, key, typeName(old))
	}
	if !found {
		weight += int64(len(key)) + overhead // of the list
	}
	surplus := 0
	if most > 0 {
		surplus = max(0, len(list)+1-most)
	}
	for _, dropped := range list[:surplus] {
		weight -= weigh(dropped)
	}
	if err := s.grow(key, weight); err != nil {
		return 0, found, err
	}
	list = append(list, value)
	clear(list[:surplus]) // what is dropped must not be kept by the array behind the list
	list = list[surplus:]
	s.values[key] = list
	return len(list), found, nil
}

// Increment adds to a number, which is 0 if it is missing, and gives the sum.
func (s *Store) Increment(key string, by float64) (sum float64, found bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, found := s.values[key]
	number, isNumber := old.(float64)
	if found && !isNumber {
		return 0, true, fmt.Errorf("%w: key %q holds %s, not a number", ErrType, key, typeName(old))
	}
	value, weight, err := copied(number + by)
	if err != nil {
		return 0, found, fmt.Errorf("key %q: %w", key, err)
	}
	_, err = s.set(key, value, weight)
	return number + by, found, err
}

// CompareAndSet sets a key if it holds an expected value. Nil is expected of a key that is missing or holds nil.
func (s *Store) CompareAndSet(key string, expected, value any) (found bool, err error) {
	value, weight, err := copied(value)
	if err != nil {
		return false, fmt.Errorf("key %q: %w", key, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	old, found := s.values[key]
	if !reflect.DeepEqual(old, expected) {
		return found, fmt.Errorf("%w: key %q does not hold what was expected", ErrConflict, key)
	}
	return s.set(key, value, weight)
}

// List gives the keys with a prefix and their values.
func (s *Store) List(prefix string) map[string]any {
	s.mu.RLock()
	defer s.mu.RUnlock()
	all := map[string]any{}
	for key, value := range s.values {
		if strings.HasPrefix(key, prefix) {
			all[key] = copyOut(value)
		}
	}
	return all
}

// Weight is the weight of all that the store holds.
func (s *Store) Weight() int64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.weight
}

// entries gives the entries of a list. They must not be changed.
func (s *Store) entries(key string) ([]any, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	value, found := s.values[key]
	if !found {
		return nil, fmt.Errorf("%w: %q", ErrMissing, key)
	}
	list, isList := value.([]any)
	if !isList {
		return nil, fmt.Errorf("%w: key %q holds %s, not a list", ErrType, key, typeName(value))
	}
	return slices.Clone(list), nil
}

// set sets a key to a value that is the store's own.
func (s *Store) set(key string, value any, weight int64) (found bool, err error) {
	old, found := s.values[key]
	change := weight + int64(len(key))
	if found {
		change = weight - weigh(old)
	}
	if err := s.grow(key, change); err != nil {
		return found, err
	}
	s.values[key] = value
	return found, nil
}

// grow makes room for a change of the weight. A store that is full can still be made lighter.
func (s *Store) grow(key string, change int64) error {
	if s.values == nil {
		return errNotSetUp
	}
	if change > 0 && s.weight+change > s.max {
		return fmt.Errorf("%w: key %q needs %d bytes more, and %d of %d are taken; remove keys, bound lists with max_entries, or raise the store's max_bytes",
			ErrFull, key, change, s.weight, s.max)
	}
	s.weight += change
	return nil
}
