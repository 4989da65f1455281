package server

import (
	"errors"
	"slices"
	"strings"
	"testing"

	pb "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
)

func ids(t *testing.T, s *Server) []string {
	t.Helper()
	list, err := pb.NewSchedulerServiceClient(dial(t, s.Addr().String())).List(t.Context(), &pb.ListRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range list.GetFlows() {
		out = append(out, f.GetId())
	}
	return out
}

func TestReload(t *testing.T) {
	s := start(t, nil)
	c := pb.NewSchedulerServiceClient(dial(t, s.Addr().String()))
	if _, err := c.ApplyFlows(t.Context(), &pb.ApplyFlowsRequest{Sources: []*pb.FlowsSource{
		{Name: "x", Content: "flows: [{id: of-the-api, task: {log: {message: x}}}]"},
	}}); err != nil {
		t.Fatal(err)
	}
	file := s.options.Flows[0]
	for _, step := range []struct {
		name string
		text string
		err  error  // nil: it is taken over
		says string // the error
		want []string
	}{
		{"the same", testFlows, nil, "", []string{"flaky", "of-the-api", "quick", "slow"}},
		{"one more", testFlows + "  - id: more\n    task: {log: {message: x}}\n", nil, "", []string{"flaky", "more", "of-the-api", "quick", "slow"}},
		{"wrong", "flows:\n  - id: more\n    task: {}\n", ErrFlows, ":3:", []string{"flaky", "more", "of-the-api", "quick", "slow"}},
		{"not YAML", "{", ErrFlows, file, []string{"flaky", "more", "of-the-api", "quick", "slow"}},
		{"other shared resources", testFlows + "resources: [{name: r, temp_dir: {}}]\n", ErrShared, "restart", []string{"flaky", "more", "of-the-api", "quick", "slow"}},
		{"a setup that fails", testFlows + "    resources: [{name: r, temp_dir: {prefix: broken}}]\n", errors.New(""), "no room", []string{"flaky", "more", "of-the-api", "quick", "slow"}},
		{"fewer", "flows:\n  - id: quick\n    task: {fail: {message: x}}\n", nil, "", []string{"of-the-api", "quick"}},
	} {
		writeFlows(t, file, step.text)
		err := s.Reload(t.Context())
		switch {
		case step.err == nil && err != nil:
			t.Errorf("%s: %v", step.name, err)
		case step.err != nil && (err == nil || !strings.Contains(err.Error(), step.says) || step.err.Error() != "" && !errors.Is(err, step.err)):
			t.Errorf("%s: %v", step.name, err)
		}
		if got := ids(t, s); !slices.Equal(got, step.want) {
			t.Errorf("%s: %q", step.name, got)
		}
	}
	if code, body := get(t, s, "/metrics"); code != 200 || !strings.Contains(body, `schedulerd_reloads_total{result="failed"} 4`) ||
		!strings.Contains(body, `schedulerd_reloads_total{result="ok"} 3`) {
		t.Errorf("%s", body)
	}
}

func TestCheck(t *testing.T) {
	o := testOptions(t)
	if n, err := Check(o); n != 3 || err != nil {
		t.Error(n, err)
	}
	writeFlows(t, o.Flows[0], "flows:\n  - id: a/b\n    task: {log: {message: x}}\n")
	if _, err := Check(o); !errors.Is(err, ErrFlows) || !strings.Contains(err.Error(), ":2:") {
		t.Error(err)
	}
}
