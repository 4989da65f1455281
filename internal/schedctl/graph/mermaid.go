package graph

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Mermaid is the diagram as a Mermaid state diagram.
func (d Diagram) Mermaid() string {
	w := &mermaid{}
	title, _ := json.Marshal(d.Title) // a string in JSON is one in YAML
	w.line(0, "---\ntitle: %s\n---\nstateDiagram-v2", title)
	w.region(1, d.region)
	w.line(1, "classDef failure fill:#fdd,stroke:#c00,color:#000")
	w.line(1, "classDef success fill:#dfd,stroke:#080,color:#000")
	w.line(1, "classDef timer fill:#def,stroke:#06c,color:#000")
	for _, class := range []struct {
		name string
		ids  []string
	}{{"failure", w.failures}, {"success", w.successes}, {"timer", w.timers}} {
		if len(class.ids) > 0 {
			w.line(1, "class %s %s", strings.Join(class.ids, ","), class.name)
		}
	}
	return w.text.String()
}

type mermaid struct {
	text                        strings.Builder
	failures, successes, timers []string
}

func (w *mermaid) line(depth int, format string, args ...any) {
	w.text.WriteString(strings.Repeat("  ", depth))
	fmt.Fprintf(&w.text, format, args...)
	w.text.WriteByte('\n')
}

func (w *mermaid) region(depth int, r region) {
	if r.start != "" {
		w.line(depth, "[*] --> %s", r.start)
	}
	for _, n := range r.nodes {
		w.node(depth, n)
	}
	for _, e := range r.edges {
		to := e.to
		if to == end {
			to = "[*]"
		}
		if e.label == "" {
			w.line(depth, "%s --> %s", e.from, to)
		} else {
			w.line(depth, "%s --> %s : %s", e.from, to, mermaidText(e.label))
		}
	}
}

func (w *mermaid) node(depth int, n node) {
	switch n.kind {
	case failure, missing:
		w.failures = append(w.failures, n.id)
	case success:
		w.successes = append(w.successes, n.id)
	case timer:
		w.timers = append(w.timers, n.id)
	}
	if len(n.inside) == 0 {
		w.line(depth, "%s : %s", n.id, mermaidText(n.name))
		for _, note := range n.notes {
			w.line(depth, "%s : %s", n.id, mermaidText(note))
		}
		return
	}
	// What surrounds others has a title and no further lines.
	title := strings.Join(append([]string{n.name}, n.notes...), ", ")
	w.line(depth, "state \"%s\" as %s {", mermaidText(title), n.id)
	for i, inside := range n.inside {
		if i > 0 {
			w.line(depth+1, "--")
		}
		w.region(depth+1, inside)
	}
	w.line(depth, "}")
}

// mermaidText writes what means something to Mermaid as the entity codes it has for that.
func mermaidText(text string) string {
	var out strings.Builder
	for _, r := range text {
		if strings.ContainsRune("#;:\"<>{}%&\\`", r) {
			fmt.Fprintf(&out, "#%d;", r)
		} else {
			out.WriteRune(r)
		}
	}
	return out.String()
}
