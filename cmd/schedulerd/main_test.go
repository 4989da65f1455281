package main

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/schedulerd/schedulerd/internal/server"
	"github.com/spf13/pflag"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	version = "v9.8.7"
	goleak.VerifyTestMain(m)
}

func newFlags() (*config, *pflag.FlagSet) {
	c := &config{Options: server.Defaults(), logFormat: "text"}
	f := pflag.NewFlagSet("schedulerd", pflag.ContinueOnError)
	c.flags(f)
	return c, f
}

// docs/configuration.md has a row for each flag, with its variable and default.
func TestFlagsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `--([a-z-]+)` \\| ([^|]*) \\| ([^|]*) \\| [^|]+ \\|$").FindAllStringSubmatch(string(page), -1) {
		documented[m[1]] = m[2] + " " + m[3]
	}
	delete(documented, "help")
	delete(documented, "version")
	_, f := newFlags()
	f.VisitAll(func(flag *pflag.Flag) {
		value := "`" + flag.DefValue + "`"
		if flag.DefValue == "" || flag.DefValue == "[]" {
			value = ""
		}
		if got, want := strings.TrimSpace(documented[flag.Name]), strings.TrimSpace(fmt.Sprintf("`%s` %s", variable(flag.Name), value)); got != want {
			t.Errorf("docs/configuration.md has %q for --%s, not %q", got, flag.Name, want)
		}
		delete(documented, flag.Name)
	})
	if len(documented) > 0 {
		t.Errorf("docs/configuration.md tells of flags that are not there: %v", documented)
	}
}

func TestEnvironment(t *testing.T) {
	c, f := newFlags()
	if err := f.Parse([]string{"--grace", "7s", "--flows", "x"}); err != nil {
		t.Fatal(err)
	}
	env := []string{
		"SCHEDULERD_GRACE=9s", "SCHEDULERD_FLOWS=a:b", "SCHEDULERD_DATA_DIR=/data", "SCHEDULERD_CACHE_SIZE=1GiB", "SCHEDULERD_LOG_LEVEL=warn",
		"SCHEDULERD_ALLOW_API_EXEC=true", "SCHEDULERD_LISTEN=", "SCHEDULERD_PORT=tcp://10.0.0.1:7420", "OTHER=1", "=odd", "alone",
	}
	if err := fromEnvironment(f, env); err != nil {
		t.Fatal(err)
	}
	if c.Grace.String() != "7s" || fmt.Sprint(c.Flows) != "[x]" {
		t.Errorf("the environment wins over the command line: %v, %v", c.Grace, c.Flows)
	}
	if c.DataDir != "/data" || c.CacheSize != 1<<30 || c.logLevel != slog.LevelWarn || !c.AllowAPIExec || c.Listen != server.Defaults().Listen {
		t.Errorf("%+v", c)
	}
	c, f = newFlags()
	list := strings.Join([]string{"a", "b"}, string(filepath.ListSeparator))
	if err := fromEnvironment(f, []string{"SCHEDULERD_FLOWS=" + list}); err != nil || fmt.Sprint(c.Flows) != "[a b]" {
		t.Errorf("%v, %v", c.Flows, err)
	}
	if err := fromEnvironment(f, []string{"SCHEDULERD_GRACE=soon"}); err == nil || !strings.Contains(err.Error(), "SCHEDULERD_GRACE") {
		t.Errorf("%v", err)
	}
}

func TestSizes(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "17": 17, "17B": 17, "1KiB": 1024, "3 MiB": 3 << 20, "2GiB": 2 << 30, "5kB": 5000, "5MB": 5e6, "1GB": 1e9,
		"": -1, "MiB": -1, "-1": -1, "1.5MiB": -1, "9999999999GiB": -1, "1TiB": -1, "x": -1,
	} {
		var s size
		err := s.Set(text)
		if want < 0 && err == nil || want >= 0 && (err != nil || int64(s) != want) {
			t.Errorf("%q is %d, %v", text, s, err)
		}
		if err == nil {
			var again size
			if err := again.Set(s.String()); err != nil || again != s {
				t.Errorf("%q is written %q, which is %d, %v", text, s.String(), again, err)
			}
		}
	}
}

// output is what a run writes, for a test to read meanwhile.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
	said chan struct{} // closed once it tells that the server runs
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if bytes.Contains(p, []byte("schedulerd runs")) {
		close(o.said)
	}
	return o.text.Write(p)
}

const flows = "flows:\n  - id: hello\n    task: {set: {values: {a: 1}}}\n"

func TestRun(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	good, bad := write("good.yaml", flows), write("bad.yaml", "flows:\n  - id: a\n    tusk: {}\n")
	for _, c := range []struct {
		name string
		args []string
		env  []string
		code int
		out  string
		err  string
	}{
		{"version", []string{"--version"}, nil, 0, "schedulerd v9.8.7", ""},
		{"help", []string{"--help"}, nil, 0, "--data-dir", ""},
		{"unknown flag", []string{"--flow", "x"}, nil, 2, "", "--flow"},
		{"argument", []string{"flows.yaml"}, nil, 2, "", "flows.yaml"},
		{"wrong value", []string{"--grace", "soon"}, nil, 2, "", "--grace"},
		{"wrong size", []string{"--cache-size", "much"}, nil, 2, "", "--cache-size"},
		{"wrong format", []string{"--log-format", "xml"}, nil, 2, "", "--log-format"},
		{"wrong level", []string{"--log-level", "loud"}, nil, 2, "", "--log-level"},
		{"wrong variable", nil, []string{"SCHEDULERD_GRACE=soon"}, 2, "", "SCHEDULERD_GRACE"},
		{"unprotected", []string{"--listen", ":7420"}, nil, 2, "", "--insecure-listen-anywhere"},
		{"check", []string{"--check", "--flows", good}, nil, 0, "flows checked: 1; nothing is wrong", ""},
		{"check, in the environment", []string{"--check"}, []string{"SCHEDULERD_FLOWS=" + good}, 0, "flows checked: 1; nothing is wrong", ""},
		{"check of nothing", []string{"--check"}, nil, 2, "", "--flows"},
		{"check of what is wrong", []string{"--check", "--flows", bad}, nil, 3, "", "bad.yaml:3:5"},
		{"start with what is wrong", []string{"--flows", bad, "--listen", "127.0.0.1:0"}, nil, 3, "", "bad.yaml:3:5"},
		{"no such data directory", []string{"--data-dir", good, "--listen", "127.0.0.1:0"}, nil, 4, "", "good.yaml"},
	} {
		var out, errs bytes.Buffer
		code := run(c.args, c.env, &out, &errs, nil)
		if code != c.code || !strings.Contains(out.String(), c.out) || !strings.Contains(errs.String(), c.err) {
			t.Errorf("%s: exit code %d\n%s%s", c.name, code, out.String(), errs.String())
		}
	}
}

func TestRunUntilASignal(t *testing.T) {
	file := filepath.Join(t.TempDir(), "flows.yaml")
	if err := os.WriteFile(file, []byte(flows), 0o600); err != nil {
		t.Fatal(err)
	}
	signals, log := make(chan os.Signal, 1), &output{said: make(chan struct{})}
	code := make(chan int, 1)
	go func() {
		code <- run([]string{"--flows", file, "--listen", "127.0.0.1:0", "--admin-listen", "", "--log-format", "json"}, nil, io.Discard, log, signals)
	}()
	<-log.said
	signals <- syscall.SIGTERM
	if got := <-code; got != 0 || !strings.Contains(log.text.String(), `"msg":"stopped"`) {
		t.Errorf("exit code %d\n%s", got, log.text.String())
	}
}
