package graph

import (
	"fmt"
	"strings"
)

// DOT is the diagram as a directed graph for Graphviz. A state with states inside is a
// cluster, entered and left through a point.
func (d Diagram) DOT() string {
	w := &dot{}
	w.line(0, "digraph %s {", quoted(d.Title))
	w.line(1, "label=%s; labelloc=t; compound=true;", quoted(d.Title))
	w.line(1, `node [shape=box, style="rounded,filled", fillcolor=white, fontname="sans-serif", fontsize=11];`)
	w.line(1, `edge [fontname="sans-serif", fontsize=9];`)
	w.line(1, "start [shape=circle, style=filled, fillcolor=black, label=\"\", width=0.15];")
	w.inside = map[string]bool{}
	w.line(1, "finish [shape=doublecircle, style=filled, fillcolor=black, label=\"\", width=0.12];")
	w.region(1, d.region, "start", "finish")
	w.line(0, "}")
	return w.text.String()
}

type dot struct {
	text   strings.Builder
	inside map[string]bool // ids of the nodes that are clusters
}

func (w *dot) line(depth int, format string, args ...any) {
	w.text.WriteString(strings.Repeat("  ", depth))
	fmt.Fprintf(&w.text, format, args...)
	w.text.WriteByte('\n')
}

// region writes a region that is entered from one node and ends at another.
func (w *dot) region(depth int, r region, in, out string) {
	for _, n := range r.nodes {
		w.node(depth, n)
	}
	if r.start != "" {
		w.edge(depth, edge{from: in, to: r.start})
	}
	for _, e := range r.edges {
		if e.to == end {
			e.to = out
		}
		w.edge(depth, e)
	}
}

func (w *dot) edge(depth int, e edge) {
	var attributes []string
	if e.label != "" {
		attributes = append(attributes, "label="+quoted(e.label))
	}
	if w.inside[e.from] {
		attributes = append(attributes, "ltail=cluster_"+e.from)
		e.from += "_out"
	}
	if w.inside[e.to] {
		attributes = append(attributes, "lhead=cluster_"+e.to)
		e.to += "_in"
	}
	suffix := ""
	if len(attributes) > 0 {
		suffix = " [" + strings.Join(attributes, ", ") + "]"
	}
	w.line(depth, "%s -> %s%s;", e.from, e.to, suffix)
}

func (w *dot) node(depth int, n node) {
	label := quoted(strings.Join(append([]string{n.name}, n.notes...), "\n"))
	if len(n.inside) == 0 {
		look := ""
		switch n.kind {
		case success:
			look = `, fillcolor="#ddffdd"`
		case failure, missing:
			look = `, fillcolor="#ffdddd"`
		case timer:
			look = `, fillcolor="#ddeeff"`
		}
		w.line(depth, "%s [label=%s%s];", n.id, label, look)
		return
	}
	w.inside[n.id] = true
	w.line(depth, "subgraph cluster_%s {", n.id)
	w.line(depth+1, "label=%s; style=rounded;", label)
	w.line(depth+1, "%s_in [shape=point];", n.id)
	w.line(depth+1, "%s_out [shape=point];", n.id)
	for _, inside := range n.inside {
		w.region(depth+1, inside, n.id+"_in", n.id+"_out")
	}
	w.line(depth, "}")
}

// quoted is a DOT string. Line ends become centred line breaks.
func quoted(text string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(text) + `"`
}
