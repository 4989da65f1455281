package main

import (
	"strings"
	"testing"
)

func TestReport(t *testing.T) {
	const (
		passed  = `{"Action":"run","Package":"p","Test":"TestA"}` + "\n" + `{"Action":"output","Package":"p","Test":"TestA","Output":"chatter\n"}` + "\n" + `{"Action":"pass","Package":"p","Test":"TestA"}` + "\n"
		ok      = `{"Action":"pass","Package":"p","Elapsed":1.25}` + "\n"
		failing = `{"Action":"fail","Package":"p","Elapsed":1.25}` + "\n"
	)
	tests := []struct {
		name, in string
		ok       bool
		want     []string
		wantNot  string
	}{
		{"pass", passed + ok, true, []string{"ok    p  1.2s", "1 passed, 0 failed, 0 skipped"}, "chatter"},
		{"nothing ran", "", false, []string{"no package was tested", "0 passed, 0 failed, 0 skipped"}, ""},
		{"no test files", `{"Action":"skip","Package":"q"}` + "\n" + passed + ok, true, []string{"1 passed, 0 failed, 0 skipped"}, "q"},
		{"other lines", "go: downloading x\n" + passed + ok, true, []string{"go: downloading x"}, ""},
		{
			"skipped test", passed + `{"Action":"run","Package":"p","Test":"TestB"}
				{"Action":"output","Package":"p","Test":"TestB","Output":"no java\n"}
				{"Action":"skip","Package":"p","Test":"TestB"}
				` + ok, false,
			[]string{"no java", "skipped: p TestB", "1 passed, 0 failed, 1 skipped"},
			"",
		},
		{
			"failed test", `{"Action":"run","Package":"p","Test":"TestB"}
				{"Action":"output","Package":"p","Test":"TestB","Output":"got 2, want 3\n"}
				{"Action":"fail","Package":"p","Test":"TestB"}
				` + failing, false,
			[]string{"got 2, want 3", "fail  p  1.2s", "failed: p TestB", "0 passed, 1 failed, 0 skipped"},
			"broken",
		},
		{
			"subtests count, their parent does not", `{"Action":"run","Package":"p","Test":"T"}
				{"Action":"run","Package":"p","Test":"T/a"}
				{"Action":"run","Package":"p","Test":"T/a/b"}
				{"Action":"pass","Package":"p","Test":"T/a/b"}
				{"Action":"pass","Package":"p","Test":"T/a"}
				{"Action":"pass","Package":"p","Test":"T"}
				` + ok, true,
			[]string{"1 passed, 0 failed, 0 skipped"},
			"",
		},
		{
			"a parent fails by its own fault once", `{"Action":"run","Package":"p","Test":"T"}
				{"Action":"run","Package":"p","Test":"T/a"}
				{"Action":"fail","Package":"p","Test":"T/a"}
				{"Action":"fail","Package":"p","Test":"T"}
				{"Action":"run","Package":"p","Test":"U"}
				{"Action":"run","Package":"p","Test":"U/a"}
				{"Action":"pass","Package":"p","Test":"U/a"}
				{"Action":"fail","Package":"p","Test":"U"}
				` + failing, false,
			[]string{"failed: p T/a", "failed: p U\n", "1 passed, 2 failed, 0 skipped"},
			"failed: p T\n",
		},
		{
			"a panic leaves a test without a verdict", `{"Action":"run","Package":"p","Test":"TestB"}
				{"Action":"output","Package":"p","Test":"TestB","Output":"panic: boom\n"}
				` + failing, false,
			[]string{"panic: boom", "failed: p TestB", "0 passed, 1 failed, 0 skipped"},
			"",
		},
		{
			"go test died", `{"Action":"run","Package":"p","Test":"TestB"}` + "\n", false,
			[]string{"failed: p TestB", "0 passed, 1 failed, 0 skipped"},
			"",
		},
		{
			"build failure", `{"ImportPath":"p","Action":"build-output","Output":"p.go:1: undefined: x\n"}
				{"ImportPath":"p","Action":"build-fail"}
				{"Action":"output","Package":"p","Output":"FAIL\tp [build failed]\n"}
				{"Action":"fail","Package":"p","FailedBuild":"p"}
				`, false,
			[]string{"undefined: x", "broken: p", "0 passed, 1 failed, 0 skipped"},
			"",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out strings.Builder
			r := newReport(&out)
			if err := r.read(strings.NewReader(tt.in)); err != nil {
				t.Fatal(err)
			}
			if got := r.close(); got != tt.ok {
				t.Errorf("ok = %v, want %v", got, tt.ok)
			}
			for _, want := range tt.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("no %q in:\n%s", want, out.String())
				}
			}
			if tt.wantNot != "" && strings.Contains(out.String(), tt.wantNot) {
				t.Errorf("%q in:\n%s", tt.wantNot, out.String())
			}
		})
	}
}
