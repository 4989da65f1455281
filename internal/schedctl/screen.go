package schedctl

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// screen keeps a block of lines at the end of a terminal's output and redraws it in
// place. What is printed goes above the block.
type screen struct {
	out    io.Writer
	window func() (width, height int, ok bool)
	// block gives the lines. Those that are too long or too many for the room are the caller's fault and cut.
	block func() []string

	mu            sync.Mutex
	drawn         int // lines of the block on the terminal
	width, height int // of the terminal when it was drawn
}

const (
	hideCursor = "\x1b[?25l"
	showCursor = "\x1b[?25h"
	clearLine  = "\x1b[K" // from the cursor on
	clearBelow = "\x1b[J" // from the cursor on
	clearAll   = "\x1b[H\x1b[2J"
)

// start redraws the block every second, since it shows how long ago things were. stop
// draws it once more, leaves it there and gives the cursor back.
func (s *screen) start() (stop func()) {
	ticker := time.NewTicker(time.Second)
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-ticker.C:
				s.update(func() []string { return nil })
			case <-quit:
				return
			}
		}
	}()
	return func() {
		ticker.Stop()
		close(quit)
		<-done
		s.update(func() []string { return nil })
		io.WriteString(s.out, showCursor)
	}
}

// room is the space for the block: one column less than there are, for a full line makes some
// terminals wrap, and one line less, for the cursor.
func (s *screen) room() (width, height int) {
	width, height, _ = s.window()
	return max(width-1, 1), max(height-1, 1)
}

// update changes what the block is made from, prints the lines that change returns, and redraws.
func (s *screen) update(change func() (print []string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	printed := change()
	block := s.block()
	width, height, _ := s.window()
	var frame strings.Builder
	switch {
	case width != s.width || height != s.height:
		// New, or the terminal has laid out its lines anew: where they are is unknown.
		frame.WriteString(hideCursor)
		if s.drawn > 0 {
			frame.WriteString(clearAll)
		}
	case s.drawn > 0:
		fmt.Fprintf(&frame, "\x1b[%dA\r", s.drawn)
	}
	for _, line := range printed {
		frame.WriteString(line + clearLine + "\n")
	}
	_, most := s.room()
	block = block[:min(len(block), most)]
	for _, line := range block {
		frame.WriteString(line + clearLine + "\n")
	}
	frame.WriteString(clearBelow)
	s.drawn, s.width, s.height = len(block), width, height
	io.WriteString(s.out, frame.String()) // in one piece, so that it does not flicker
}
