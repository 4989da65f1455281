package measure

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// programs are what can run in a process of its own, by name.
var programs = map[string]func(arguments []byte, talk *Talk) (Sample, error){}

// Program makes f known under a name and returns what runs it. Call it from package-level variables.
func Program[A any](name string, f func(A, *Talk) (Sample, error)) func(A) Child {
	programs[name] = func(arguments []byte, talk *Talk) (Sample, error) {
		var a A
		if err := json.Unmarshal(arguments, &a); err != nil {
			return nil, err
		}
		return f(a, talk)
	}
	return func(a A) Child {
		arguments, err := json.Marshal(a)
		if err != nil {
			panic(err) // arguments are plain structs
		}
		return Child{program: name, arguments: string(arguments)}
	}
}

// Child is a program with its arguments, ready to run.
type Child struct {
	program, arguments string
	core               int // 1 + the core it is pinned to; 0: any
	limit              time.Duration
	env                []string
}

// On pins the program to one core, with one processor for Go code, if the machine has more than one.
func (c Child) On(core int) Child {
	c.core = core + 1
	return c
}

// Within bounds its time; without it that is two minutes.
func (c Child) Within(limit time.Duration) Child {
	c.limit = limit
	return c
}

// Setting sets a variable of its environment, NAME=value.
func (c Child) Setting(variable string) Child {
	c.env = append(slices.Clone(c.env), variable)
	return c
}

// Talk is how a program speaks with the one that started it while both run: lines of text.
type Talk struct {
	in  *bufio.Reader
	out io.Writer
}

// Say sends a line.
func (t *Talk) Say(line string) error {
	_, err := fmt.Fprintln(t.out, line)
	return err
}

// Hear waits for a line.
func (t *Talk) Hear() (string, error) {
	line, err := t.in.ReadString('\n')
	return strings.TrimSuffix(line, "\n"), err
}

// childMark is the first argument of a process that is a child.
const childMark = "as-child"

// IfChild runs the program that this process was started for, and ends the process. It returns if it is the parent.
func IfChild() {
	if len(os.Args) != 4 || os.Args[1] != childMark {
		return
	}
	stop := profile(os.Args[2])
	sample, err := programs[os.Args[2]]([]byte(os.Args[3]), &Talk{bufio.NewReader(os.Stdin), os.Stdout})
	stop()
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(sample)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// ProfileVariable names a folder into which each child writes profiles of itself; see runtime/pprof.
const ProfileVariable = "BENCH_PROFILE"

// profile begins a profile of this process, if one is wanted, and returns what ends it.
func profile(name string) (stop func()) {
	dir := os.Getenv(ProfileVariable)
	if dir == "" {
		return func() {}
	}
	file := func(kind string) (io.WriteCloser, error) {
		return os.Create(filepath.Join(dir, fmt.Sprintf("%s-%d.%s", name, os.Getpid(), kind)))
	}
	cpu, err := file("cpu")
	if err == nil {
		err = pprof.StartCPUProfile(cpu)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "no profile:", err)
		return func() {}
	}
	return func() {
		pprof.StopCPUProfile()
		heap, err := file("heap")
		if err == nil {
			err = errors.Join(pprof.Lookup("allocs").WriteTo(heap, 0), heap.Close())
		}
		if err := errors.Join(err, cpu.Close()); err != nil {
			fmt.Fprintln(os.Stderr, "no profile:", err)
		}
	}
}

// Process is a child that runs.
type Process struct {
	Talk
	Pid     int
	command *exec.Cmd
	stdin   io.WriteCloser
	stderr  *bytes.Buffer
	timer   *time.Timer
	name    string
}

// Start starts the program.
func (c Child) Start() (*Process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &Process{command: exec.Command(self, childMark, c.program, c.arguments), stderr: &bytes.Buffer{}, name: c.program}
	p.command.Env = append(os.Environ(), c.env...)
	p.command.Stderr = p.stderr
	if p.stdin, err = p.command.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := p.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.Talk = Talk{bufio.NewReader(stdout), p.stdin}
	if c.core > 0 && Cores() > 1 {
		p.command.Env = append(p.command.Env, "GOMAXPROCS=1")
	}
	if err := p.command.Start(); err != nil {
		return nil, err
	}
	p.Pid = p.command.Process.Pid
	if c.core > 0 && Cores() > 1 {
		var set unix.CPUSet
		set.Set((c.core - 1) % Cores())
		if err := pin(p.Pid, &set); err != nil {
			return nil, errors.Join(err, p.Kill())
		}
	}
	if c.limit == 0 {
		c.limit = 2 * time.Minute
	}
	p.timer = time.AfterFunc(c.limit, func() { _ = p.command.Process.Kill() })
	return p, nil
}

// pin pins all threads there are; those to come inherit it.
func pin(pid int, set *unix.CPUSet) error {
	tasks, err := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/task")
	for _, task := range tasks {
		if id, bad := strconv.Atoi(task.Name()); bad == nil {
			err = errors.Join(err, unix.SchedSetaffinity(id, set))
		}
	}
	return err
}

// Result waits for the program's end and gives its sample.
func (p *Process) Result() (Sample, error) {
	defer p.timer.Stop()
	var sample Sample
	line, err := p.Hear()
	if err == nil {
		err = json.Unmarshal([]byte(line), &sample)
	}
	_ = p.stdin.Close()
	if err := errors.Join(p.command.Wait(), err); err != nil {
		return nil, fmt.Errorf("%s: %w: %s", p.name, err, bytes.TrimSpace(p.stderr.Bytes()))
	}
	return sample, nil
}

// Kill ends the program at once, as kill -9 does.
func (p *Process) Kill() error {
	if p.timer != nil {
		p.timer.Stop()
	}
	err := p.command.Process.Kill()
	_ = p.command.Wait() // it was killed, and says so
	return err
}

// Run runs the program by itself.
func (c Child) Run() (Sample, error) {
	p, err := c.Start()
	if err != nil {
		return nil, err
	}
	return p.Result()
}
