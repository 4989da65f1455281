// Package graph draws a flow's state machine as text: as Mermaid or as DOT.
//
// [Of] makes a [Diagram] of a definition, which need not be valid: targets that do
// not exist are drawn, and marked. [Diagram.Mermaid] and [Diagram.DOT] write it down.
// The same definition always gives the same text.
//
// Mermaid is written for state diagrams (https://mermaid.js.org/syntax/stateDiagram.html),
// DOT for Graphviz (https://graphviz.org/doc/info/lang.html).
package graph
