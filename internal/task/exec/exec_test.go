package exec

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/schedulerd/schedulerd/internal/task"
	"github.com/schedulerd/schedulerd/internal/task/kindtest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// run runs the exec task with the given fields, in JSON.
func run(t *testing.T, call *kindtest.Call, fields string) (any, error) {
	t.Helper()
	built := kindtest.Task(t, Kind, kindtest.Config(), `{"exec": {`+fields+`}}`)
	result, err := built.Run(t.Context(), call.Invocation)
	return result.Value, err
}

func sh(script string) string { return `"shell": ` + strconv.Quote(script) }

func TestResult(t *testing.T) {
	long := strings.Repeat("é", MaxResult) // twice as many bytes
	for name, test := range map[string]struct {
		fields string
		want   map[string]any
	}{
		"exit code":         {sh("echo out"), map[string]any{"exit_code": 0.0}},
		"none":              {sh("echo out") + `, "output": "EXEC_OUTPUT_NONE"`, map[string]any{"exit_code": 0.0}},
		"success codes":     {sh("exit 3") + `, "success_codes": [0, 3]`, map[string]any{"exit_code": 3.0}},
		"command":           {`"command": ["echo", "${params.name}", "$HOME", "a b"], "output": "EXEC_OUTPUT_TEXT"`, map[string]any{"exit_code": 0.0, "stdout": "Ada $HOME a b", "truncated": false}},
		"shell":             {sh("echo ${params.n} $${0:+set}; echo err >&2; echo") + `, "output": "EXEC_OUTPUT_TEXT"`, map[string]any{"exit_code": 0.0, "stdout": "3 set", "truncated": false}},
		"no output":         {sh(":") + `, "output": "EXEC_OUTPUT_TEXT"`, map[string]any{"exit_code": 0.0, "stdout": "", "truncated": false}},
		"stdin":             {`"command": ["cat"], "stdin": "<${params.list}>", "output": "EXEC_OUTPUT_TEXT"`, map[string]any{"exit_code": 0.0, "stdout": `<[1,"two"]>`, "truncated": false}},
		"dir":               {`"command": ["pwd"], "dir": "/${'u' + 'sr'}", "output": "EXEC_OUTPUT_TEXT"`, map[string]any{"exit_code": 0.0, "stdout": "/usr", "truncated": false}},
		"binary":            {`"command": ["printf", "\\377\\000\\376"], "output": "EXEC_OUTPUT_TEXT"`, map[string]any{"exit_code": 0.0, "stdout": "\uFFFD\x00\uFFFD", "truncated": false}},
		"long text":         {`"command": ["cat"], "stdin": "` + long + `", "output": "EXEC_OUTPUT_TEXT"`, map[string]any{"exit_code": 0.0, "stdout": long[:MaxResult], "truncated": true}},
		"long text, uneven": {`"command": ["cat"], "stdin": "x` + long + `", "output": "EXEC_OUTPUT_TEXT"`, map[string]any{"exit_code": 0.0, "stdout": "x" + long[:MaxResult-2], "truncated": true}},
		"longest text":      {`"command": ["cat"], "stdin": "` + long[:MaxResult] + `\n", "output": "EXEC_OUTPUT_TEXT"`, map[string]any{"exit_code": 0.0, "stdout": long[:MaxResult], "truncated": false}},
		"JSON": {
			`"command": ["echo", " {\"a\": [1, null, true, \"x\"]} "], "output": "EXEC_OUTPUT_JSON"`,
			map[string]any{"exit_code": 0.0, "value": map[string]any{"a": []any{1.0, nil, true, "x"}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := run(t, kindtest.NewCall(), test.fields)
			if err != nil || !reflect.DeepEqual(got, any(test.want)) {
				t.Errorf("got %.300v, %v\nwant %.300v", got, err, test.want)
			}
		})
	}
}

func TestFailure(t *testing.T) {
	for name, test := range map[string]struct {
		fields, class, want string
		permanent           bool
	}{
		"exit code":          {sh("exit 75"), "exit:75", "exit code 75", false},
		"last words":         {sh("echo first >&2; echo '  tar: disk full' >&2; echo >&2; exit 2"), "exit:2", "exit code 2: tar: disk full", false},
		"not a success":      {sh("exit 0") + `, "success_codes": [1]`, "exit:0", "exit code 0", false},
		"unknown in shell":   {sh("no-such-command 2>/dev/null"), "exit:127", "exit code 127, with which the shell says that there is no such command", false},
		"command's own 127":  {`"command": ["sh", "-c", "exit 127"]`, "exit:127", "exit code 127", false},
		"directory in shell": {sh("/tmp 2>/dev/null"), "exit:126", "exit code 126, with which the shell says that a command cannot be executed", false},
		"signal":             {sh("kill -SEGV $$"), "signal:SEGV", "killed by SIGSEGV", false},
		"out of memory":      {sh("kill -KILL $$"), "signal:KILL", "killed by SIGKILL; if no one did that, the machine was out of memory", false},
		"no such command":    {`"command": ["no-such-command"]`, "start", `command "no-such-command" not found in PATH (/bin)`, true},
		"no such dir":        {`"command": ["true"], "dir": "/no/such/dir"`, "start", "working directory: stat /no/such/dir: no such file or directory", true},
		"expression":         {`"command": ["echo", "${params.missing}"]`, "expression", "command[1]: params.missing: ", true},
		"in stdin":           {`"command": ["cat"], "stdin": "${params.missing}"`, "expression", "stdin: params.missing: ", true},
		"in dir":             {`"command": ["cat"], "dir": "${params.missing}"`, "expression", "dir: params.missing: ", true},
		"in shell":           {sh("echo ${params.missing}"), "expression", "shell: params.missing: ", true},
		"in env":             {sh(":") + `, "env": {"A": "${params.missing}"}`, "expression", `env["A"]: params.missing: `, true},
		"not JSON":           {sh("echo hello") + `, "output": "EXEC_OUTPUT_JSON"`, "output", "standard output: it is not one JSON value: ", true},
		"two JSON values":    {sh("echo 1 2") + `, "output": "EXEC_OUTPUT_JSON"`, "output", "standard output: it is not one JSON value: ", true},
		"no JSON":            {sh("echo") + `, "output": "EXEC_OUTPUT_JSON"`, "output", "standard output: it is empty", true},
		"too much JSON": {
			`"command": ["cat"], "stdin": "` + strings.Repeat("1", MaxResult+1) + `", "output": "EXEC_OUTPUT_JSON"`,
			"output", fmt.Sprintf("standard output: it has %d bytes, and a result holds %d", MaxResult+1, MaxResult), true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("PATH", "/bin")
			_, err := run(t, kindtest.NewCall(), test.fields)
			failure := kindtest.Failure(t, err)
			if failure.Class != test.class || failure.Permanent != test.permanent || !strings.HasPrefix(err.Error(), test.want) {
				t.Errorf("got class %q, permanent %v: %v\nwant class %q, permanent %v: %s…", failure.Class, failure.Permanent, err, test.class, test.permanent, test.want)
			}
		})
	}
}

func TestInvalid(t *testing.T) {
	for name, test := range map[string]struct{ fields, want string }{
		"nothing":         {``, "exec: there is nothing to run"},
		"both":            {`"command": ["a"], "shell": "b"`, "exec: command and shell are both set"},
		"empty name":      {`"command": [""]`, "exec.command[0]: the program's name is empty"},
		"bad expression":  {`"command": ["a", "${nope}"]`, "exec.command[1]: column 3: "},
		"secret argument": {`"command": ["a", "${env('SECRET')}"]`, "exec.command[1]: column 3: "},
		"exit code":       {`"command": ["a"], "success_codes": [0, 256]`, "exec.success_codes[1]: exit codes are 0 to 255, not 256"},
		"variable":        {`"command": ["a"], "env": {"A=B": ""}`, `exec.env["A=B"]: "A=B" cannot be the name of a variable`},
		"passed variable": {`"command": ["a"], "pass_env": [""]`, `exec.pass_env[0]: "" cannot be the name of a variable`},
		"our variable":    {`"command": ["a"], "env": {"SCHEDULERD_RUN_ID": ""}`, `exec.env["SCHEDULERD_RUN_ID"]: SCHEDULERD_RUN_ID is set by schedulerd`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := kindtest.Compile(t, Kind, kindtest.Config(), `{"exec": {`+test.fields+`}}`)
			if err == nil || !strings.HasPrefix(err.Error(), test.want) {
				t.Errorf("got %v, want %s…", err, test.want)
			}
		})
	}
	_, err := kindtest.Compile(t, Kind, task.Config{}, `{"exec": {"command": ["true"]}}`)
	if err == nil || !strings.Contains(err.Error(), "--allow-api-exec") {
		t.Errorf("where commands are not allowed: got %v", err)
	}
}

func TestEnvironment(t *testing.T) {
	for name, value := range map[string]string{
		"PATH": "/bin:/usr/bin", "HOME": "/home/of/daemon", "LANG": "C.UTF-8", "TZ": "UTC",
		"DATABASE_PASSWORD": "do not hand on", "TOKEN": "hand on", "OTHER": "by name",
	} {
		t.Setenv(name, value)
	}
	call := kindtest.NewCall()
	want := map[string]string{
		"PATH": "/bin:/usr/bin", "HOME": "/tmp", "LANG": "C.UTF-8", "TZ": "UTC",
		"TOKEN": "hand on", "NAME": "Ada & co", "SECRET": "by name",
		"SCHEDULERD_RUN_ID": "flow@7", "SCHEDULERD_FLOW_ID": "flow", "SCHEDULERD_STATE": "work", "SCHEDULERD_ATTEMPT": "2",
		"SCHEDULERD_IDEMPOTENCY_KEY": "i1/flow@7/work/1", "SCHEDULERD_FIRE_TIME": "2031-02-03T04:05:06Z",
	}
	check := func() {
		t.Helper()
		_, err := run(t, call, `"command": ["env"], "pass_env": ["TOKEN", "NOT_SET"], "env": {"NAME": "${params.name} & co", "SECRET": "${env('OTHER')}", "HOME": "/tmp"}`)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, line := range call.Written.Lines() {
			name, value, _ := strings.Cut(line.Text, "=")
			got[name] = value
		}
		if !maps.Equal(got, want) {
			t.Errorf("got  %v\nwant %v", got, want)
		}
	}
	check()

	call = kindtest.NewCall()
	call.FireTime = time.Time{}
	want["SCHEDULERD_FIRE_TIME"] = ""
	check()

	for _, name := range inherited {
		os.Unsetenv(name) // t.Setenv brings it back
		delete(want, name)
	}
	want["PATH"], want["HOME"] = defaultPath, "/tmp"
	call = kindtest.NewCall()
	call.FireTime = time.Time{}
	check()
}

func TestOutput(t *testing.T) {
	call := kindtest.NewCall()
	if _, err := run(t, call, sh(`echo one; printf 'two\r\n'; printf '\303\050\n'; printf 'no end'`)); err != nil {
		t.Fatal(err)
	}
	want := []kindtest.Line{{Text: "one"}, {Text: "two"}, {Text: "\uFFFD("}, {Text: "no end"}}
	if got := call.Written.Lines(); !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}

	call = kindtest.NewCall()
	if _, err := run(t, call, sh(`echo wrong >&2`)); err != nil {
		t.Fatal(err)
	}
	if got := call.Written.Lines(); !slices.Equal(got, []kindtest.Line{{Stderr: true, Text: "wrong"}}) {
		t.Errorf("got %+v", got)
	}
}

// Lines are there while the command runs, not only at its end.
func TestOutputStreams(t *testing.T) {
	call := kindtest.NewCall()
	call.Written.Wrote = make(chan string)
	fifo := filepath.Join(t.TempDir(), "fifo")
	built := kindtest.Task(t, Kind, kindtest.Config(), `{"exec": {`+sh("mkfifo "+fifo+"; echo ready; read -r word <"+fifo+"; echo got $word")+`}}`)
	done := make(chan error, 1)
	go func() {
		_, err := built.Run(t.Context(), call.Invocation)
		done <- err
	}()
	if line := <-call.Written.Wrote; line != "ready" {
		t.Errorf("got %q", line)
	}
	if err := os.WriteFile(fifo, []byte("word\n"), 0); err != nil {
		t.Fatal(err)
	}
	if line := <-call.Written.Wrote; line != "got word" {
		t.Errorf("got %q", line)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// counter counts lines and keeps the last one.
type counter struct {
	mu           sync.Mutex
	lines, bytes int
	last         string
}

func (c *counter) Line(_ string, _ int, _ bool, text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lines++
	c.bytes += len(text) + 1
	c.last = text
}

func TestHugeOutputTakesConstantMemory(t *testing.T) {
	const size = 200 << 20
	for name, script := range map[string]string{
		"lines":    fmt.Sprintf("yes 'a line of output' | head -c %d", size),
		"one line": fmt.Sprintf("head -c %d /dev/zero", size),
		"stderr":   fmt.Sprintf("yes 'a line of output' | head -c %d >&2", size),
	} {
		t.Run(name, func(t *testing.T) {
			output := &counter{}
			call := kindtest.NewCall()
			call.Invocation.Output = output
			built := kindtest.Task(t, Kind, kindtest.Config(), `{"exec": {`+sh(script)+`, "output": "EXEC_OUTPUT_TEXT"}}`)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := built.Run(t.Context(), call.Invocation)
			runtime.ReadMemStats(&after)
			if err != nil {
				t.Fatal(err)
			}
			// Everything ever allocated, garbage included: the lines handed on are most of it.
			if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 2*MaxOutput {
				t.Errorf("%d MiB of output: %d MiB allocated", size>>20, allocated>>20)
			}
			if output.bytes > MaxOutput+200 {
				t.Errorf("%d bytes were handed on, more than %d", output.bytes, MaxOutput)
			}
			if name == "one line" {
				if want := fmt.Sprintf("… [%d bytes more were cut]", size-64<<10); !strings.HasSuffix(output.last, want) || output.lines != 1 {
					t.Errorf("%d lines, the last ends with %q; want %q", output.lines, output.last[max(0, len(output.last)-60):], want)
				}
			} else if dropped := fmt.Sprintf("%d bytes more were dropped]", size-output.bytes+len(output.last)+1); !strings.HasSuffix(output.last, dropped) {
				t.Errorf("the last line is %q, want %q", output.last, dropped)
			}
		})
	}
}

func TestStop(t *testing.T) {
	for name, test := range map[string]struct{ fields, want string }{
		"gently":   {sh("echo ready; exec sleep 1000"), "the command was stopped with SIGTERM"},
		"by force": {sh("trap '' TERM; echo ready; while :; do sleep 0.01; done") + `, "kill_delay": "0.050s"`, "the command was killed: it did not end within 50ms of SIGTERM"},
		"at once":  {sh("trap '' TERM; echo ready; while :; do sleep 0.01; done") + `, "kill_delay": "0s"`, "the command was killed: it did not end within 0s of SIGTERM"},
	} {
		t.Run(name, func(t *testing.T) {
			call := kindtest.NewCall()
			call.Written.Wrote = make(chan string, 10)
			ctx, cancel := context.WithCancelCause(t.Context())
			reason := errors.New("no longer wanted")
			go func() {
				<-call.Written.Wrote
				cancel(reason)
			}()
			built := kindtest.Task(t, Kind, kindtest.Config(), `{"exec": {`+test.fields+`}}`)
			result, err := built.Run(ctx, call.Invocation)
			if !errors.Is(err, reason) || err.Error() != test.want || result.Value != nil {
				t.Errorf("got %v, %v; want %s", result.Value, err, test.want)
			}
		})
	}
}

func TestOutputHeldOpen(t *testing.T) {
	call := kindtest.NewCall()
	got, err := run(t, call, sh(`cd "$(mktemp -d)" && mkfifo left && { setsid sh -c 'echo >left; exec sleep 3' & read -r _ <left; rm -r "$PWD"; }`))
	if err != nil || !reflect.DeepEqual(got, any(map[string]any{"exit_code": 0.0})) {
		t.Error(got, err)
	}
	lines := call.Written.Lines()
	if last := lines[len(lines)-1]; !last.Stderr || !strings.Contains(last.Text, "holds its output open") {
		t.Errorf("got %+v", lines)
	}
}

func TestOwnerIsInTheEnvironment(t *testing.T) {
	for owner, want := range map[string]string{"/data": "/data", "": "nobody"} {
		built := kindtest.Task(t, KindOf(owner), kindtest.Config(), `{"exec": {"shell": "printf %s \"$${SCHEDULERD_OWNER:-nobody}\"", "output": "EXEC_OUTPUT_TEXT"}}`)
		got, err := built.Run(t.Context(), kindtest.NewCall().Invocation)
		if value, _ := got.Value.(map[string]any); err != nil || value["stdout"] != want {
			t.Errorf("owner %q: %v, %v", owner, got, err)
		}
	}
}

func TestResource(t *testing.T) {
	dir := t.TempDir()
	for name, test := range map[string]struct {
		definition, setup, teardown string
	}{
		"both":           {`{"exec": {"setup": ["touch", "made"], "teardown": ["rm", "made"], "dir": "` + dir + `"}}`, "", ""},
		"setup only":     {`{"exec": {"setup": ["sh", "-c", "test \"$WORD\" = right"], "env": {"WORD": "${'ri' + 'ght'}"}}}`, "", ""},
		"setup fails":    {`{"exec": {"setup": ["sh", "-c", "echo no disk >&2; exit 4"]}}`, "exit code 4: no disk", ""},
		"on stdout":      {`{"exec": {"setup": ["sh", "-c", "echo no disk; exit 4"]}}`, "exit code 4: no disk", ""},
		"no command":     {`{"exec": {"setup": ["no-such-command"]}}`, `command "no-such-command" not found in PATH`, ""},
		"teardown fails": {`{"exec": {"teardown": ["sh", "-c", "kill -ABRT $$"]}}`, "", "killed by SIGABRT"},
	} {
		t.Run(name, func(t *testing.T) {
			built, err := kindtest.CompileResource(t, ResourceKind, kindtest.Config(), test.definition)
			if err != nil {
				t.Fatal(err)
			}
			check := func(step string, err error, want string) {
				if want == "" && err != nil || want != "" && (err == nil || !strings.HasPrefix(err.Error(), want)) {
					t.Errorf("%s: got %v, want %q", step, err, want)
				}
			}
			check("setup", built.Setup(t.Context()), test.setup)
			check("teardown", built.Teardown(t.Context()), test.teardown)
		})
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

func TestOwnerIsInTheEnvironmentOfResources(t *testing.T) {
	built, err := kindtest.CompileResource(t, ResourceKindOf("/data"), kindtest.Config(), `{"exec": {"setup": ["sh", "-c", "test \"$SCHEDULERD_OWNER\" = /data"]}}`)
	if err != nil {
		t.Fatal(err)
	}
	if err := built.Setup(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestResourceIsStopped(t *testing.T) {
	built, err := kindtest.CompileResource(t, ResourceKind, kindtest.Config(), `{"exec": {"setup": ["sleep", "1000"]}}`)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := built.Setup(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

func TestInvalidResource(t *testing.T) {
	for name, test := range map[string]struct {
		config           task.Config
		definition, want string
	}{
		"nothing":     {kindtest.Config(), `{"exec": {}}`, "exec: there is nothing to run"},
		"not allowed": {task.Config{}, `{"exec": {"setup": ["true"]}}`, "exec: commands are not allowed"},
		"params":      {kindtest.Config(), `{"exec": {"setup": ["echo", "${params.x}"]}}`, "exec.setup[1]: column 3: "},
		"variable":    {kindtest.Config(), `{"exec": {"setup": ["echo"], "env": {"": "x"}}}`, `exec.env[""]: "" cannot be`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := kindtest.CompileResource(t, ResourceKind, test.config, test.definition)
			if err == nil || !strings.HasPrefix(err.Error(), test.want) {
				t.Errorf("got %v, want %s…", err, test.want)
			}
		})
	}
}
