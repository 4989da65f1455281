package storetest

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/schedulerd/schedulerd/internal/core/store"
)

// Fault is what happens to one commit. The zero value is none.
type Fault struct {
	// Delay passes between the write and the sync. Until it is over nobody sees the group, and a crash may or may not keep it.
	Delay time.Duration
	// Dropped: the group never reaches the disk. The answer is ErrUnknown.
	Dropped bool
	// Lost: the group is durable, and the answer is ErrUnknown.
	Lost bool
	// Broken: the sync fails. The answer is ErrIO, the store accepts nothing more until it is opened again, and as with a crash that
	// may or may not find the group.
	Broken bool
}

// Disk holds a store as a disk would: it outlives the process that writes to it. In a synctest bubble, make it inside.
type Disk struct {
	mu          sync.Mutex
	rng         *rand.Rand
	fault       func() Fault
	instance    string
	synced      store.Table
	unsynced    [][]store.Change
	revision    store.Revision // the newest written, so that no revision is given twice
	generations map[store.Shard]uint64
	open        *process
}

// NewDisk returns an empty disk. The seed decides what a crash keeps.
func NewDisk(seed uint64) *Disk {
	return &Disk{
		rng:         rand.New(rand.NewPCG(seed, seed)),
		fault:       func() Fault { return Fault{} },
		instance:    fmt.Sprintf("disk-%d", seed),
		generations: map[store.Shard]uint64{},
	}
}

// Inject asks fault about each commit from now on; nil ends it.
func (d *Disk) Inject(fault func() Fault) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if fault == nil {
		fault = func() Fault { return Fault{} }
	}
	d.fault = fault
}

// Open opens the store, as a process does when it starts. There is one at a time.
func (d *Disk) Open() (store.Store, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open != nil {
		return nil, store.ErrLocked
	}
	d.settle()
	p := &process{disk: d, gone: make(chan struct{})}
	p.sessions = store.NewSessions(p, d.revision, d.generations)
	d.open = p
	return p, nil
}

// Crash ends the process that has the store open: its sessions are dead, its calls fail with ErrClosed. Of what it had written and not
// yet synced a prefix is kept.
func (d *Disk) Crash() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open != nil {
		d.open.end()
	}
	d.settle()
}

// settle decides what became of writes that were not synced.
func (d *Disk) settle() {
	for _, changes := range d.unsynced[:d.rng.IntN(len(d.unsynced)+1)] {
		d.synced.Apply(changes)
	}
	d.unsynced = nil
}

// process is the store as one process has it open.
type process struct {
	disk     *Disk
	sessions *store.Sessions
	gone     chan struct{} // closed by Close and Crash
}

func (p *process) end() {
	if p.disk.open == p {
		p.disk.open = nil
		close(p.gone)
		p.sessions.End(store.ErrClosed)
	}
}

func (p *process) Name() string     { return "disk" }
func (p *process) Instance() string { return p.disk.instance }
func (p *process) Durable() bool    { return true }

func (p *process) Get(ctx context.Context, shard store.Shard, key []byte) ([]byte, error) {
	if err := p.readable(ctx); err != nil {
		return nil, err
	}
	return p.disk.synced.Get(shard, key), nil
}

func (p *process) Scan(ctx context.Context, shard store.Shard, prefix []byte, reverse bool, fn func(key, value []byte) bool) error {
	if err := p.readable(ctx); err != nil {
		return err
	}
	return p.disk.synced.Scan(ctx, shard, prefix, reverse, fn)
}

func (p *process) readable(ctx context.Context) error {
	select {
	case <-p.gone:
		return store.ErrClosed
	default:
		return ctx.Err()
	}
}

// Close waits for the commit under way.
func (p *process) Close() error {
	p.sessions.End(store.ErrClosed)
	p.sessions.Drain()
	p.disk.mu.Lock()
	defer p.disk.mu.Unlock()
	p.end()
	return nil
}

func (p *process) Join(ctx context.Context) (store.Session, error) {
	session, err := p.sessions.Join(ctx)
	if err != nil {
		return nil, err
	}
	return faulty{session, p.disk}, nil
}

// faulty is a session whose answers may be lost on the way back.
type faulty struct {
	store.Session
	disk *Disk
}

type faultKey struct{}

func (f faulty) Expire() { f.Session.(Expirer).Expire() }

func (f faulty) Commit(ctx context.Context, g store.Group) (store.Revision, error) {
	f.disk.mu.Lock()
	fault := f.disk.fault()
	f.disk.mu.Unlock()
	revision, err := f.Session.Commit(context.WithValue(ctx, faultKey{}, fault), g)
	if err == nil && fault.Lost {
		return 0, fmt.Errorf("commit %d: the answer was lost: %w", g.Seq, store.ErrUnknown)
	}
	return revision, err
}

// Advance is store.Backend's.
func (p *process) Advance(_ context.Context, owned []store.Owned) error {
	p.disk.mu.Lock()
	defer p.disk.mu.Unlock()
	if p.disk.open != p {
		return store.ErrClosed
	}
	for _, o := range owned {
		p.disk.generations[o.Shard] = o.Generation
	}
	return nil
}

// Apply is store.Backend's.
func (p *process) Apply(ctx context.Context, revision store.Revision, changes []store.Change) error {
	fault := ctx.Value(faultKey{}).(Fault)
	if fault.Dropped {
		return fmt.Errorf("the group was dropped: %w", store.ErrUnknown)
	}
	if !p.write(revision, changes) {
		return store.ErrClosed
	}
	if fault.Delay > 0 {
		delay := time.NewTimer(fault.Delay)
		defer delay.Stop()
		select {
		case <-delay.C:
		case <-p.gone:
			return store.ErrClosed
		}
	}
	if fault.Broken {
		err := fmt.Errorf("%w: the disk is broken", store.ErrIO)
		p.sessions.End(err)
		return err
	}
	if !p.sync() {
		return store.ErrClosed
	}
	return nil
}

func (p *process) write(revision store.Revision, changes []store.Change) bool {
	p.disk.mu.Lock()
	defer p.disk.mu.Unlock()
	if p.disk.open != p {
		return false
	}
	kept := make([]store.Change, len(changes))
	for i, c := range changes {
		kept[i] = store.Change{Shard: c.Shard, Key: append([]byte(nil), c.Key...)}
		if c.Value != nil {
			kept[i].Value = append([]byte{}, c.Value...)
		}
	}
	p.disk.unsynced = append(p.disk.unsynced, kept)
	p.disk.revision = max(p.disk.revision, revision)
	return true
}

func (p *process) sync() bool {
	p.disk.mu.Lock()
	defer p.disk.mu.Unlock()
	if p.disk.open != p {
		return false
	}
	for _, changes := range p.disk.unsynced {
		p.disk.synced.Apply(changes)
	}
	p.disk.unsynced = nil
	return true
}

// Generations returns the generation of each shard that was ever owned.
func (d *Disk) Generations() map[store.Shard]uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.generations)
}
