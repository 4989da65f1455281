package graph

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"pgregory.net/rapid"

	pb "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
)

var update = flag.Bool("update", false, "rewrite testdata/*.golden")

func TestGolden(t *testing.T) {
	text, err := os.ReadFile("testdata/everything.json")
	if err != nil {
		t.Fatal(err)
	}
	flow := &pb.Flow{}
	if err := protojson.Unmarshal(text, flow); err != nil {
		t.Fatal(err)
	}
	for name, got := range map[string]string{"everything.mmd": Of(flow).Mermaid(), "everything.dot": Of(flow).DOT()} {
		file := "testdata/" + name + ".golden"
		if *update {
			if err := os.WriteFile(file, []byte(got), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s differs (go test -update accepts it); got:\n%s", file, got)
		}
	}
}

func TestShortForms(t *testing.T) {
	task := &pb.Task{Kind: &pb.Task_Exec{Exec: &pb.ExecTask{Command: []string{"true"}}}}
	tests := []struct {
		name string
		flow *pb.Flow
		want []string
	}{
		{"one task", &pb.Flow{Id: "f", Work: &pb.Flow_Task{Task: task}}, []string{"s1 : run", "s1 --> s2", "s2 --> [*]"}},
		{"nothing", &pb.Flow{Id: "f"}, []string{"stateDiagram-v2"}},
		{
			"timer flow", &pb.Flow{Id: "f", Work: &pb.Flow_Timers{Timers: &pb.TimerWorkflow{
				Initial: "b",
				Timers: map[string]*pb.TimerNode{
					"a": {Timer: &pb.Timer{Task: task}},
					"b": {Timer: &pb.Timer{Task: task}, Routes: map[string]string{"go": "a"}},
				},
			}}},
			[]string{"[*] --> s1", "s1 : b", "s1 --> s2 : go", "s1 --> s1 : retry", "s2 --> [*] : complete"},
		},
		{
			"unknown initial state", &pb.Flow{Id: "f", Work: &pb.Flow_Workflow{Workflow: &pb.Workflow{Initial: "lost"}}},
			[]string{"[*] --> s1", "s1 : not defined", "class s1 failure"},
		},
		{
			"many branches", &pb.Flow{Id: "f", Work: &pb.Flow_Workflow{Workflow: &pb.Workflow{
				Initial: "a",
				States:  map[string]*pb.State{"a": {Work: &pb.State_Split{Split: &pb.Split{Branches: make([]*pb.Branch, 100)}}}},
			}}},
			[]string{"… 88 more"},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := Of(test.flow).Mermaid()
			for _, want := range test.want {
				if !strings.Contains(got, want) {
					t.Errorf("no %q in:\n%s", want, got)
				}
			}
		})
	}
}

func TestTaskText(t *testing.T) {
	tests := []struct {
		task *pb.Task
		want string
	}{
		{&pb.Task{}, "no task"},
		{&pb.Task{Kind: &pb.Task_Http{Http: &pb.HttpTask{Method: "POST", Url: "http://x"}}}, "POST http://x"},
		{&pb.Task{Kind: &pb.Task_Wait{Wait: &pb.WaitTask{Until: &pb.WaitTask_Expression{Expression: "params.until"}}}}, "wait for params.until"},
		{&pb.Task{Kind: &pb.Task_Wait{Wait: &pb.WaitTask{Until: &pb.WaitTask_Duration{Duration: durationpb.New(90e9)}}}}, "wait 90s"},
		{&pb.Task{Kind: &pb.Task_Store{Store: &pb.StoreTask{Store: "kv"}}}, "store kv"},
		{
			&pb.Task{Kind: &pb.Task_Store{Store: &pb.StoreTask{Store: "kv", Operation: &pb.StoreTask_List{List: &pb.StoreList{Prefix: "a/"}}}}},
			"store kv: list a/",
		},
		{&pb.Task{Kind: &pb.Task_Log{Log: &pb.LogTask{Message: strings.Repeat("ä", 200)}}}, "log: " + strings.Repeat("ä", maxLabel-6) + "…"},
	}
	for _, test := range tests {
		if got := taskText(test.task); got != test.want {
			t.Errorf("taskText(%v) = %q, want %q", test.task, got, test.want)
		}
	}
}

// TestAnyWorkflow draws random workflows, valid or not: each node named in an edge is declared,
// and no text can break out of its place.
func TestAnyWorkflow(t *testing.T) {
	name := rapid.SampledFrom([]string{"a", "b", "c", "d", "x-1", "_y"})
	text := rapid.StringN(0, 20, -1)
	rapid.Check(t, func(t *rapid.T) {
		w := &pb.Workflow{Initial: name.Draw(t, "initial"), States: map[string]*pb.State{}, Exits: map[string]*pb.Exit{}}
		for range rapid.IntRange(0, 5).Draw(t, "states") {
			state := &pb.State{Work: &pb.State_Task{Task: &pb.Task{Kind: &pb.Task_Log{Log: &pb.LogTask{Message: text.Draw(t, "message")}}}}}
			for range rapid.IntRange(0, 3).Draw(t, "transitions") {
				state.Transitions = append(state.Transitions, &pb.Transition{When: text.Draw(t, "when"), Next: name.Draw(t, "next")})
			}
			w.States[name.Draw(t, "state")] = state
		}
		for range rapid.IntRange(0, 2).Draw(t, "exits") {
			w.Exits[name.Draw(t, "exit")] = &pb.Exit{Failure: proto.String(text.Draw(t, "failure"))}
		}
		flow := &pb.Flow{Id: text.Draw(t, "id"), Work: &pb.Flow_Workflow{Workflow: w}}
		diagram := Of(flow)
		mermaid, dot := diagram.Mermaid(), diagram.DOT()
		if again := Of(flow); again.Mermaid() != mermaid || again.DOT() != dot {
			t.Fatal("the same flow gave another text")
		}
		declared := map[string]bool{"": true}
		for _, n := range diagram.nodes {
			if declared[n.id] {
				t.Fatalf("id %q is given twice", n.id)
			}
			declared[n.id] = true
		}
		for _, e := range append(diagram.edges, edge{to: diagram.start}) {
			if !declared[e.from] || !declared[e.to] {
				t.Fatalf("edge between nodes that are not declared: %+v in %+v", e, diagram)
			}
		}
		for i, line := range strings.Split(strings.TrimSuffix(mermaid, "\n"), "\n") {
			if i > 2 && !mermaidLine.MatchString(line) {
				t.Fatalf("not a line of a state diagram: %q", line)
			}
		}
		for _, line := range strings.Split(strings.TrimSuffix(dot, "\n"), "\n") {
			if !dotLine.MatchString(line) {
				t.Fatalf("not a line of a digraph: %q", line)
			}
		}
		if !utf8.ValidString(mermaid) || !utf8.ValidString(dot) {
			t.Fatal("not UTF-8")
		}
	})
}

var (
	plainText   = `[^;:"<>{}%&\\` + "`" + `\n]|#\d+;`
	mermaidLine = regexp.MustCompile(fmt.Sprintf(
		`^(stateDiagram-v2|  s\d+ : (%[1]s)*|  (s\d+|\[\*\]) --> (s\d+|\[\*\])( : (%[1]s)*)?|  class(Def)? .*)$`, plainText))
	dotString = `"([^"\\\n]|\\["\\n])*"`
	dotLine   = regexp.MustCompile(fmt.Sprintf(
		`^(digraph %[1]s \{|\}|  label=%[1]s; .*|  (node|edge|start|finish) \[.*\];|  s\d+ \[label=%[1]s(, fillcolor="#\w+")?\];|  (s\d+|start) -> (s\d+|finish)( \[label=%[1]s\])?;)$`, dotString))
)
