package expr

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"weak"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types/ref"
	"github.com/schedulerd/schedulerd/internal/core/workflow"
	"github.com/schedulerd/schedulerd/internal/fault"
)

// program is a compiled expression. It is immutable, and shared by all that have the same text.
type program struct {
	text  string
	names Names
	cel   cel.Program
	kind  *cel.Type
	uses  uses
}

// uses is what an expression refers to.
type uses struct {
	env     bool        // it reads the daemon's environment
	results []Reference // results it names
}

// Reference is the name of a state whose result an expression wants.
type Reference struct {
	State  string
	Offset int // of the name's expression, in bytes of the text that was compiled
}

// programKey is what makes two programs the same.
type programKey struct {
	text  string
	names Names
}

// programs holds every program in use, so that a hundred thousand flows with the same condition share one. The pointers
// are weak: a program goes with the last flow that has it.
var programs sync.Map // programKey → weak.Pointer[program]

// compile gives the program of an expression, or fault.List.
func compile(text string, names Names) (*program, error) {
	key := programKey{text, names}
	if kept, ok := programs.Load(key); ok {
		if p := kept.(weak.Pointer[program]).Value(); p != nil {
			return p, nil
		}
	}
	p, err := newProgram(text, names)
	if err != nil {
		return nil, err
	}
	kept := weak.Make(p)
	programs.Store(key, kept)
	runtime.AddCleanup(p, func(key programKey) { programs.CompareAndDelete(key, kept) }, key)
	return p, nil
}

func newProgram(text string, names Names) (p *program, err error) {
	if len(text) > maxExpression {
		return nil, faultAt(0, "the expression is longer than %d bytes", maxExpression)
	}
	defer func() {
		// The parser and the checker are not ours, and the text is anybody's.
		if recover() != nil {
			p, err = nil, faultAt(0, "the expression cannot be compiled")
		}
	}()
	env := environmentOf(names)
	checked, issues := env.Compile(text)
	if issues.Err() != nil {
		return nil, explain(text, names, issues)
	}
	found, err := inspect(text, checked)
	if err != nil {
		return nil, err
	}
	planned, err := env.Program(checked, env.planning...)
	if err != nil {
		return nil, faultAt(0, "%v", explainEval(err))
	}
	return &program{text: text, names: names, cel: planned, kind: checked.OutputType(), uses: found}, nil
}

// eval runs the program.
func (p *program) eval(scope *workflow.Scope) (ref.Val, error) {
	switch {
	case scope == nil:
		scope = &noScope
	case scope.Identity == nil:
		identified := *scope
		identified.Identity = noScope.Identity
		scope = &identified
	}
	out, _, err := p.cel.Eval((*activation)(scope))
	switch {
	case err == nil:
		return out, nil
	case p.uses.env && !errors.Is(err, errNotSet):
		// The reason may quote the secret.
		return nil, fmt.Errorf("%s: it cannot be evaluated; the reason is withheld because it reads the environment", p.shown())
	default:
		return nil, fmt.Errorf("%s: %w", p.shown(), explainEval(err))
	}
}

// shown is the text of the program, fit for a message.
func (p *program) shown() string {
	const most = 80
	runes := []rune(p.text)
	if len(runes) > most {
		runes = append(runes[:most-1], '…')
	}
	return string(runes)
}

// faultAt is one fault at an offset of the expression.
func faultAt(offset int, format string, args ...any) fault.List {
	return fault.List{{Offset: offset, Message: fmt.Sprintf(format, args...)}}
}
