package expr

import (
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/schedulerd/schedulerd/internal/core/workflow"
)

// hostile are expressions that would hang or exhaust a daemon that let them. big is a text of 1 MiB.
var hostile = []string{
	// Texts that grow.
	`params.big.replace("", params.big)`,
	`lists.range(100000).map(i, params.big).join()`,
	`lists.range(100000).map(i, "").join(params.big)`,
	`"%s%s%s%s%s".format([params.big, params.big, params.big, params.big, params.big])`,
	`"%.999999999f".format([1.0])`,
	`lists.range(1000).map(x, params.big + "a")`,
	`[params.big, params.big, params.big, params.big, params.big]`,
	`lists.range(100000).map(i, params.big)`,
	`cel.bind(a, params.big + params.big, cel.bind(b, a + a + a + a, cel.bind(c, b + b + b + b, c + c + c + c)))`,
	`run.start.strftime(params.big.replace("x", "%A"))`,
	`json.encode(lists.range(100000).map(i, params.big))`,
	// Lists that grow.
	`lists.range(2000000000)`,
	`lists.range(1000).map(x, lists.range(1000)).flatten()`,
	`cel.bind(a, lists.range(100000), cel.bind(b, a+a+a+a+a+a+a+a+a+a, cel.bind(c, b+b+b+b+b+b+b+b+b, cel.bind(d, c+c+c+c+c+c+c+c+c, d+d+d+d+d+d))))`,
	`cel.bind(b, lists.range(10).map(x, lists.range(10000)), cel.bind(c, lists.range(100).map(x, b), lists.range(100).map(x, c) == lists.range(100).map(x, c)))`,
	// Work that grows.
	`lists.range(100000).all(x, lists.range(100000).all(y, true))`,
	`lists.range(100000).hasAll(lists.range(100000))`,
	`lists.range(100000).distinct()`,
	`lists.range(100000).sortBy(e, -e)`,
	`lists.range(100000).map(x, string(x)).all(x, params.big.matches("(x+x+)+y" + x))`,
	`lists.range(1000).all(i, json.encode(params.big) != "")`,
	`lists.range(1000).all(i, json.decode(json.encode(params.big)) != "")`,
	`lists.range(1000).all(i, strings.quote(params.big) != "")`,
	`lists.range(1000).all(i, params.big.split("").size() > 0)`,
	`lists.range(1000).all(i, base64.encode(bytes(params.big)) != "")`,
	`lists.range(1000).all(i, lists.range(100000) == lists.range(100000))`,
	`lists.range(1000).all(i, "y" in lists.range(100000).map(i, params.big))`,
	`lists.range(100).all(i, json.decode("[" + lists.range(10000).map(i, "[1]").join(",") + "]").flatten().size() > 3)`,
}

func TestHostileExpressions(t *testing.T) {
	s := &workflow.Scope{Identity: &workflow.Identity{}, Params: map[string]any{"big": strings.Repeat("x", 1<<20)}}
	for _, text := range hostile {
		v, err := CompileValue(text, Run)
		if err != nil {
			continue // the checker has seen through it
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err = v.Eval(s) // unbounded, each would take minutes and gigabytes
		runtime.ReadMemStats(&after)
		if err == nil {
			t.Errorf("%s: gives a result", text)
		}
		if made := after.TotalAlloc - before.TotalAlloc; made > 1<<29 {
			t.Errorf("%s: allocated %d MiB", text, made>>20)
		}
	}
}

// What a flow has good reason to do is within the bounds.
func TestWithinBounds(t *testing.T) {
	rows := make([]any, 5000)
	for i := range rows {
		rows[i] = map[string]any{"id": float64(i), "name": "row", "tags": []any{"a", "b"}}
	}
	s := &workflow.Scope{Identity: &workflow.Identity{}, Params: map[string]any{"rows": rows, "text": strings.Repeat("line\n", 10_000)}}
	for _, text := range []string{
		`params.rows.filter(r, r.id % 2 == 0 && "a" in r.tags).map(r, r.name + "-" + string(r.id)).join(",")`,
		`params.rows.map(r, {"id": r.id, "double": r.id * 2})`,
		`params.text.split("\n").filter(l, l != "").size()`,
		`json.decode(json.encode(params.rows)).size()`,
		`params.text.replace("line", "row").size()`,
		`params.rows == params.rows`,
		`lists.range(500).map(i, i * i).distinct().sort()`,
	} {
		v, err := CompileValue(text, Run)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if _, err := v.Eval(s); err != nil {
			t.Error(err)
		}
	}
}

func TestDeepResult(t *testing.T) {
	var deep any = 1.0
	for range maxDepth + 10 {
		deep = []any{deep}
	}
	v, err := CompileValue(`params.deep`, Run)
	if err != nil {
		t.Fatal(err)
	}
	s := &workflow.Scope{Identity: &workflow.Identity{}, Params: map[string]any{"deep": deep}}
	if _, err := v.Eval(s); errorText(err) != "params.deep: the result is nested deeper than 64 levels" {
		t.Errorf("%v", err)
	}
}

func TestSecrets(t *testing.T) {
	const secret = "s3cr3t-value"
	t.Setenv("EXPR_TEST_TOKEN", secret)
	token, err := CompileTemplate(`Bearer ${env("EXPR_TEST_TOKEN")}`, Run|Env)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := token.String(scope()); err != nil || got != "Bearer "+secret {
		t.Errorf("%q, %v", got, err)
	}
	if !token.Secret() {
		t.Error("it is not known as a secret")
	}
	plain, err := CompileTemplate(`Bearer ${params.name}`, Run|Env)
	if err != nil || plain.Secret() {
		t.Errorf("%v, %v", plain.Secret(), err)
	}
	// It is read at each evaluation.
	t.Setenv("EXPR_TEST_TOKEN", "rotated")
	if got, err := token.String(scope()); err != nil || got != "Bearer rotated" {
		t.Errorf("%q, %v", got, err)
	}
	t.Setenv("EXPR_TEST_TOKEN", secret)

	// Outside of a run nothing else is known.
	if _, err := CompileTemplate(`${env("X") + params.name}`, Env); !strings.Contains(errorText(err), "params is not known here, outside of a run") {
		t.Errorf("%v", err)
	}
	alone, err := CompileTemplate(`${env("EXPR_TEST_TOKEN")}`, Env)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := alone.String(nil); err != nil || got != secret {
		t.Errorf("%q, %v", got, err)
	}

	// Who triggers a flow must not choose what is read.
	for _, text := range []string{`${env(params.name)}`, `${["A"].map(x, env(x))}`, `${env("A" + "B")}`} {
		if _, err := CompileTemplate(text, Run|Env); !strings.Contains(errorText(err), "env takes the name of a variable in quotes") {
			t.Errorf("%s: %v", text, err)
		}
	}
	// Errors do not quote it, but say when it is missing.
	for _, text := range []string{
		`${json.decode(env("EXPR_TEST_TOKEN"))}`, `${int(env("EXPR_TEST_TOKEN"))}`, `${{"a": 1}[env("EXPR_TEST_TOKEN")]}`,
		`${timestamp(env("EXPR_TEST_TOKEN"))}`, `${run.start.strftime(env("EXPR_TEST_TOKEN") + "%")}`, `${[env("EXPR_TEST_TOKEN")].map(x, 1 / 0)}`,
	} {
		wrong, err := CompileTemplate(text, Run|Env)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if _, err := wrong.String(scope()); err == nil || strings.Contains(err.Error(), secret) || !strings.Contains(err.Error(), "withheld") {
			t.Errorf("%s: %v", text, err)
		}
	}
	missing, err := CompileTemplate(`${env("EXPR_TEST_MISSING")}`, Env)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := missing.String(nil); errorText(err) != `env("EXPR_TEST_MISSING"): EXPR_TEST_MISSING is not set in the daemon's environment` {
		t.Errorf("%v", err)
	}
}

func TestConcurrentUse(t *testing.T) {
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			for range 50 {
				c, err := CompileCondition(`result.status >= 500 && params.n + 1 == 3 && "p" in result.items`, Run)
				if err != nil {
					t.Error(err)
					return
				}
				if holds, err := c.Eval(scope()); err != nil || !holds {
					t.Error(holds, err)
					return
				}
			}
		})
	}
	wait.Wait()
}

// Equal expressions share a program while anybody has one, and it goes with the last.
func TestProgramsAreShared(t *testing.T) {
	const text = `params.shared_by_this_test == 1`
	a, err := CompileCondition(text, Run)
	if err != nil {
		t.Fatal(err)
	}
	b, err := CompileCondition(text, Run)
	if err != nil {
		t.Fatal(err)
	}
	if a.program != b.program {
		t.Error("two programs")
	}
	runtime.KeepAlive(a)
	runtime.KeepAlive(b)
	a, b = nil, nil
	for range 100 {
		runtime.GC()
		if _, kept := programs.Load(programKey{text, Run}); !kept {
			return
		}
		runtime.Gosched()
	}
	t.Error("the program is kept though nobody has it")
}

func BenchmarkCondition(b *testing.B) {
	c, err := CompileCondition(`result.status >= 500 && params.n + 1 == 3`, Run)
	if err != nil {
		b.Fatal(err)
	}
	s := scope()
	b.ReportAllocs()
	for b.Loop() {
		if holds, err := c.Eval(s); err != nil || !holds {
			b.Fatal(holds, err)
		}
	}
}

func BenchmarkCompile(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := newProgram(`result.status >= 500 && params.n + 1 == 3`, Run); err != nil {
			b.Fatal(err)
		}
	}
}
