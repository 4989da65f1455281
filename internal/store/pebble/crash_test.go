package pebble

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

var ctx = context.Background()

// powerLoss copies the disk before random operations on it, as a power loss at that moment would leave it.
type powerLoss struct {
	disk  *vfs.MemFS
	every int

	mu           sync.Mutex
	rng          *rand.Rand
	acknowledged int // newest group that was
	begun        int // newest group that may have been written
	left         []remains
}

// remains is what a power loss left.
type remains struct {
	disk            *vfs.MemFS
	atLeast, atMost int // groups
}

func (p *powerLoss) String() string { return "power loss" }

func (p *powerLoss) MaybeError(op errorfs.Op) error {
	if op.Kind.ReadOrWrite() == errorfs.OpIsRead {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rng.IntN(p.every) > 0 {
		return nil
	}
	config := vfs.CrashCloneCfg{UnsyncedDataPercent: []int{0, 20, 50, 100}[p.rng.IntN(4)], RNG: p.rng}
	p.left = append(p.left, remains{p.disk.CrashClone(config), p.acknowledged, p.begun})
	return nil
}

func (p *powerLoss) groups(acknowledged, begun int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.acknowledged, p.begun = acknowledged, begun
}

// live opens the store on the disk, goes on with the history, and returns what power losses on the way would have left.
func (p *powerLoss) live(t *testing.T, h *history, groups int) []remains {
	t.Helper()
	s, err := Open(small(Options{Dir: "/data/store", FS: errorfs.Wrap(p.disk, p)}))
	if err != nil {
		t.Fatal(err)
	}
	first := int(s.Info().Revision)
	p.groups(first, first+1)
	err = h.append(s, func(n int) bool {
		p.groups(n, n+1)
		return n < first+groups
	})
	if err != nil {
		t.Fatal(err)
	}
	mustClose(t, s)
	return p.left
}

// After a power loss the store holds the groups that were acknowledged, perhaps the one under way, each of them whole; and it works.
func TestPowerLoss(t *testing.T) {
	losses, kept := 0, 0
	for seed := range uint64(8) {
		h, later := newHistory(seed), newHistory(seed)
		rng := rand.New(rand.NewPCG(seed, 0))
		disk := remains{disk: vfs.NewCrashableMem()}
		for life := range 4 {
			every := 200
			if life == 0 {
				every = 40 // the first life is short, and has the creation in it
			}
			power := &powerLoss{disk: disk.disk, every: every, rng: rng, acknowledged: disk.atLeast, begun: disk.atMost}
			left := power.live(t, h, 50+life*200)
			for _, r := range left {
				// A copy, so that what a check does to it does not matter to the next life.
				s, err := Open(small(Options{Dir: "/data/store", FS: r.disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rng})}))
				if err != nil {
					t.Fatalf("seed %d, life %d: %v", seed, life, err)
				}
				n, err := h.check(s)
				if err != nil {
					t.Fatalf("seed %d, life %d: %v", seed, life, err)
				}
				if n < r.atLeast || n > r.atMost {
					t.Fatalf("seed %d, life %d: the power loss left %d groups, %d were acknowledged and %d begun", seed, life, n, r.atLeast, r.atMost)
				}
				if n > r.atLeast {
					kept++
				}
				h.grow(t, s, 10)
				if _, err := later.check(s); err != nil {
					t.Fatalf("seed %d, life %d, some groups later: %v", seed, life, err)
				}
				mustClose(t, s)
			}
			losses += len(left)
			if len(left) > 0 {
				// The next life begins with what one of the losses left.
				disk = left[rng.IntN(len(left))]
			} else {
				disk = remains{power.disk, power.acknowledged, power.acknowledged}
			}
		}
	}
	t.Logf("%d power losses; after %d of them a group was there that had not been acknowledged yet", losses, kept)
	if losses < 100 {
		t.Errorf("only %d power losses, want at least 100", losses)
	}
}
