package expr

import (
	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"github.com/schedulerd/schedulerd/internal/fault"
)

// inspect finds what an expression refers to, and rejects what only its syntax tree shows.
func inspect(text string, checked *cel.Ast) (uses, error) {
	tree := checked.NativeRep()
	var found uses
	var faults fault.List
	at := func(e ast.Expr) int { return offset(text, tree.SourceInfo().GetStartLocation(e.ID())) }
	ast.PostOrderVisit(tree.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		switch e.Kind() {
		case ast.SelectKind:
			if s := e.AsSelect(); !s.IsTestOnly() && isResults(s.Operand()) {
				found.results = append(found.results, Reference{s.FieldName(), at(s.Operand())})
			}
		case ast.CallKind:
			call := e.AsCall()
			switch call.FunctionName() {
			case operators.Index:
				if name, ok := literalString(call.Args()[1]); ok && isResults(call.Args()[0]) {
					found.results = append(found.results, Reference{name, at(call.Args()[0])})
				}
			case "env":
				found.env = true
				if _, ok := literalString(call.Args()[0]); !ok {
					faults = append(faults, fault.Fault{Offset: at(call.Args()[0]), Message: `env takes the name of a variable in quotes, as in env("API_TOKEN"), not a value computed by the run`})
				}
			}
		}
	}))
	return found, faults.Err()
}

func isResults(e ast.Expr) bool {
	return e.Kind() == ast.IdentKind && e.AsIdent() == "results"
}

func literalString(e ast.Expr) (string, bool) {
	if e.Kind() != ast.LiteralKind {
		return "", false
	}
	s, ok := e.AsLiteral().(types.String)
	return string(s), ok
}
