package core

import (
	"strings"
	"sync"

	"github.com/RaduBerinde/btreemap"
)

// index finds entries by id, for the engine and for readers. The entries' own fields stay the engine's; readers use published.
type index struct {
	mu   sync.RWMutex
	byID *btreemap.BTreeMap[string, *entry]
}

func newIndex() *index { return &index{byID: btreemap.New[string, *entry](32, strings.Compare)} }

func (x *index) get(id string) *entry {
	x.mu.RLock()
	defer x.mu.RUnlock()
	_, en, _ := x.byID.Get(id)
	return en
}

func (x *index) put(en *entry) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.byID.ReplaceOrInsert(en.id, en)
}

func (x *index) remove(id string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.byID.Delete(id)
}

// pageSize bounds how long a reader holds the lock.
const pageSize = 512

// after returns up to pageSize entries whose ids follow id, in order.
func (x *index) after(id string, page []*entry) []*entry {
	page = page[:0]
	x.mu.RLock()
	defer x.mu.RUnlock()
	x.byID.AscendFunc(btreemap.GT(id), btreemap.Max[string](), func(_ string, en *entry) bool {
		page = append(page, en)
		return len(page) < pageSize
	})
	return page
}

// each calls fn for every entry in order of id until it returns false, without holding the lock during the call.
func (x *index) each(fn func(*entry) bool) { x.from("", fn) }

// from is each for the entries whose ids follow id.
func (x *index) from(id string, fn func(*entry) bool) {
	var page []*entry
	for {
		page = x.after(id, page)
		for _, en := range page {
			if !fn(en) {
				return
			}
		}
		if len(page) < pageSize {
			return
		}
		id = page[len(page)-1].id
	}
}
