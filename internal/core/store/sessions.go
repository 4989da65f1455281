package store

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
)

// Backend is what Sessions needs of a store that one process has to itself. Its methods are not called concurrently.
type Backend interface {
	// Advance makes the generations of shards that change their owner durable.
	Advance(ctx context.Context, owned []Owned) error
	// Apply makes the changes of one group durable, together with the revision. An error other than ErrTooLarge leaves open
	// whether it did; the backend then ends the sessions (with End), or the caller repeats the group.
	Apply(ctx context.Context, revision Revision, changes []Change) error
}

// Sessions gives out the sessions of a store that one process has to itself: which of them owns which shard, what each committed last,
// and who is refused. There may be several at a time, so that taking over can be tested without a cluster.
type Sessions struct {
	backend  Backend
	revision atomic.Uint64

	// lane is held while changes of ownership and commits are made, so that a takeover waits for the commit under way. It is a
	// channel because waiting for it can then be given up, and lets virtual time pass.
	lane        chan struct{}
	generations map[Shard]uint64
	owners      map[Shard]*session

	mu    sync.Mutex // of the fields below, and of session.err
	live  map[*session]struct{}
	ended error
}

// NewSessions starts from what the store remembers: the newest revision, and the generation of each shard that was ever owned.
func NewSessions(backend Backend, revision Revision, generations map[Shard]uint64) *Sessions {
	s := &Sessions{
		backend:     backend,
		lane:        make(chan struct{}, 1),
		generations: maps.Clone(generations),
		owners:      map[Shard]*session{},
		live:        map[*session]struct{}{},
	}
	if s.generations == nil {
		s.generations = map[Shard]uint64{}
	}
	s.revision.Store(uint64(revision))
	return s
}

// Revision is the newest commit.
func (s *Sessions) Revision() Revision { return Revision(s.revision.Load()) }

// Join begins a session.
func (s *Sessions) Join(ctx context.Context) (Session, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended != nil {
		return nil, s.ended
	}
	joined := &session{of: s, done: make(chan struct{})}
	s.live[joined] = struct{}{}
	return joined, nil
}

// End ends all sessions, for good, and says why. The first reason counts. It does not wait for the commit under way: Drain does.
func (s *Sessions) End(reason error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended == nil {
		s.ended = reason
	}
	for live := range s.live {
		live.endLocked(s.ended)
	}
}

// Drain waits for the commit under way. After End and Drain the backend is not called any more.
func (s *Sessions) Drain() {
	s.lane <- struct{}{}
	<-s.lane
}

type session struct {
	of   *Sessions
	done chan struct{}
	err  error // under of.mu; why done is closed

	// Under of.lane.
	seq    uint64
	answer Revision
}

func (s *session) Done() <-chan struct{} { return s.done }

func (s *session) Revision() Revision { return s.of.Revision() }

func (s *session) Err() error {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	return s.err
}

// Expire ends the session as a lost lease would: it is not asked, others may take its shards, and what it still tries is refused.
func (s *session) Expire() { s.end(fmt.Errorf("the session expired: %w", ErrFenced)) }

func (s *session) Close(context.Context) error {
	s.end(fmt.Errorf("the session was closed: %w", ErrClosed))
	return nil
}

func (s *session) end(reason error) {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	s.endLocked(reason)
}

func (s *session) endLocked(reason error) {
	if s.err == nil {
		s.err = reason
		close(s.done)
		delete(s.of.live, s)
	}
}

// enter takes the lane if the session is alive then; the caller leaves it.
func (s *session) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case s.of.lane <- struct{}{}:
	case <-s.done:
		return s.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := s.Err(); err != nil {
		s.leave()
		return err
	}
	return nil
}

func (s *session) leave() { <-s.of.lane }

func (s *session) Acquire(ctx context.Context, shards []Shard) ([]Owned, error) {
	if err := s.enter(ctx); err != nil {
		return nil, fmt.Errorf("acquire shards: %w", err)
	}
	defer s.leave()
	var owned, taken []Owned
	seen := make(map[Shard]bool, len(shards))
	for _, shard := range shards {
		if seen[shard] {
			continue
		}
		seen[shard] = true
		switch owner := s.of.owners[shard]; {
		case owner == s:
			owned = append(owned, Owned{shard, s.of.generations[shard]})
		case owner == nil || owner.Err() != nil:
			next := Owned{shard, s.of.generations[shard] + 1}
			owned, taken = append(owned, next), append(taken, next)
		}
	}
	if len(taken) > 0 {
		if err := s.of.backend.Advance(ctx, taken); err != nil {
			return nil, fmt.Errorf("acquire shards: %w", err)
		}
	}
	for _, next := range taken {
		s.of.owners[next.Shard], s.of.generations[next.Shard] = s, next.Generation
	}
	return owned, nil
}

func (s *session) Release(ctx context.Context, shards []Shard) error {
	if err := s.enter(ctx); err != nil {
		return fmt.Errorf("release shards: %w", err)
	}
	defer s.leave()
	for _, shard := range shards {
		if s.of.owners[shard] == s {
			delete(s.of.owners, shard)
		}
	}
	return nil
}

func (s *session) Commit(ctx context.Context, g Group) (Revision, error) {
	if err := s.enter(ctx); err != nil {
		return 0, fmt.Errorf("commit %d: %w", g.Seq, err)
	}
	defer s.leave()
	switch {
	case g.Seq == s.seq && s.seq > 0:
		return s.answer, nil
	case g.Seq != s.seq+1:
		return 0, fmt.Errorf("commit %d: %w: the session's last was %d", g.Seq, ErrSequence, s.seq)
	}
	for i, change := range g.Changes {
		if (i == 0 || change.Shard != g.Changes[i-1].Shard) && s.of.owners[change.Shard] != s {
			return 0, fmt.Errorf("commit %d: shard %d is not this session's: %w", g.Seq, change.Shard, ErrFenced)
		}
	}
	revision := s.of.Revision() + 1
	if err := s.of.backend.Apply(ctx, revision, g.Changes); err != nil {
		return 0, fmt.Errorf("commit %d: %w", g.Seq, err)
	}
	s.of.revision.Store(uint64(revision))
	s.seq, s.answer = g.Seq, revision
	return revision, nil
}
