package schedctl

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/term"
	"google.golang.org/grpc"
)

// Env is what a command touches outside of the program.
type Env struct {
	Args     []string // without the program's name
	In       io.Reader
	Out, Err io.Writer
	Getenv   func(string) string
	// Now tells the time, in the zone that times are shown in.
	Now func() time.Time
	// Window is the size of the terminal that Out is; ok is false if it is none.
	Window func() (width, height int, ok bool)
	// Dial is grpc.NewClient, or leads to a server in memory.
	Dial func(target string, opts ...grpc.DialOption) (*grpc.ClientConn, error)
	// Version of the program.
	Version string
}

// OSEnv is the environment of the process.
func OSEnv(version string) Env {
	return Env{
		Args:    os.Args[1:],
		In:      os.Stdin,
		Out:     os.Stdout,
		Err:     os.Stderr,
		Getenv:  os.Getenv,
		Now:     time.Now,
		Window:  window,
		Dial:    grpc.NewClient,
		Version: version,
	}
}

// window is the size of the terminal that standard output is.
func window() (width, height int, ok bool) {
	width, height, err := term.GetSize(int(os.Stdout.Fd()))
	if err != nil || os.Getenv("TERM") == "dumb" {
		return 0, 0, false
	}
	if width == 0 || height == 0 { // a terminal that does not know its size
		return 80, 24, true
	}
	return width, height, true
}

// Main runs the command line of the process and returns its exit code. The
// first SIGINT or SIGTERM ends the command in order, a second one at once.
func Main(version string) int {
	ctx, restore := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer restore()
	context.AfterFunc(ctx, restore)
	return Run(ctx, OSEnv(version))
}
