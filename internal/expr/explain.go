package expr

import (
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types/ref"
	"github.com/schedulerd/schedulerd/internal/fault"
)

func explain(text string, names Names, issues *cel.Issues) error {
	var faults fault.List
	for _, e := range issues.Errors() {
		faults = append(faults, fault.Fault{Offset: e.Location.Column(), Message: tidy(e.Message)})
	}
	return faults
}

func explainEval(err error) error { return err }

func tidy(message string) string { return strings.TrimSpace(message) }

func inspect(text string, checked *cel.Ast) (uses, error) { return uses{}, nil }

func typeName(t *cel.Type) string { return t.String() }

func valueName(v ref.Val) string { return v.Type().TypeName() }
