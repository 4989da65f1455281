package pebble

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// A child of this test is the test binary again, told by its environment to write to a store instead.
const (
	childVariable = "PEBBLE_TEST_CHILD"
	childSeed     = 42
)

func TestMain(m *testing.M) {
	switch role, argument, _ := strings.Cut(os.Getenv(childVariable), " "); role {
	case "":
		os.Exit(m.Run())
	case "write":
		writeUntilKilled(argument)
	case "limited":
		writeUntilTheLimit(argument)
	}
	os.Exit(1)
}

// child prepares to start this binary in a role.
func child(t *testing.T, role, argument string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(self)
	c.Env = append(os.Environ(), childVariable+"="+role+" "+argument)
	c.Stderr = os.Stderr
	return c
}

// writeUntilKilled goes on with the history and prints each group that was acknowledged.
func writeUntilKilled(dir string) {
	fmt.Println("opening")
	s, err := Open(small(Options{Dir: dir}))
	if err == nil {
		err = newHistory(childSeed).append(s, func(n int) bool {
			_, err := fmt.Println(n)
			return err == nil
		})
	}
	fmt.Fprintln(os.Stderr, err)
}

// A process that is killed at any moment leaves what it acknowledged, each group whole.
func TestKill(t *testing.T) {
	const kills = 25
	dir := t.TempDir()
	rng := rand.New(rand.NewPCG(childSeed, 0))
	h := newHistory(childSeed)
	acknowledged := 0
	for kill := range kills {
		c := child(t, "write", dir)
		out, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		// Some are killed while they open the store, the others after some commits, in the middle of the next.
		for range 1 + rng.IntN(4)*rng.IntN(150) {
			if !lines.Scan() {
				t.Fatal("the child ended by itself")
			}
			note(t, lines.Text(), &acknowledged)
		}
		if err := c.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for lines.Scan() { // what it printed before it was dead
			note(t, lines.Text(), &acknowledged)
		}
		if err := c.Wait(); err == nil || c.ProcessState.Exited() {
			t.Fatalf("the child was not killed: %v", err)
		}
		if kill%3 == 2 {
			continue // the next child recovers
		}
		s, err := Open(small(Options{Dir: dir}))
		if err != nil {
			t.Fatalf("after kill %d: %v", kill, err)
		}
		n, err := h.check(s)
		if err != nil {
			t.Fatalf("after kill %d: %v", kill, err)
		}
		if n < acknowledged || n > acknowledged+1 {
			t.Fatalf("after kill %d the store holds %d groups, %d were acknowledged", kill, n, acknowledged)
		}
		acknowledged = n
		mustClose(t, s)
	}
	t.Logf("%d kills, %d groups", kills, acknowledged)
	if acknowledged < 100 {
		t.Errorf("only %d groups were written: the kills came too early to show anything", acknowledged)
	}
}

func note(t *testing.T, line string, acknowledged *int) {
	t.Helper()
	if line == "opening" {
		return
	}
	n, err := strconv.Atoi(line)
	if err != nil {
		t.Fatalf("the child printed %q", line)
	}
	if n <= *acknowledged {
		t.Fatalf("the child acknowledged group %d after %d", n, *acknowledged)
	}
	*acknowledged = n
}
