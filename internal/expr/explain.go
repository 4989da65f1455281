package expr

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/parser"
	"github.com/schedulerd/schedulerd/internal/fault"
)

// What is told about one expression and about one text is bounded: what follows the first few faults is mostly their
// consequence.
const (
	maxFaults         = 5
	maxTemplateFaults = 20
)

// explain says in plain words what the compiler found wrong.
func explain(text string, names Names, issues *cel.Issues) fault.List {
	found := issues.Errors()
	if slices.ContainsFunc(found, func(e *common.Error) bool {
		return strings.HasPrefix(e.Message, "Syntax error") || strings.HasPrefix(e.Message, "reserved identifier")
	}) {
		return fault.List{explainSyntax(text, found[0])}
	}
	var faults fault.List
	for _, e := range found {
		at := offset(text, e.Location)
		if m := undeclared.FindStringSubmatch(e.Message); m != nil {
			at = beginning(text, at, m[1])
		}
		f := fault.Fault{Offset: at, Message: explainCheck(text, at, names, e.Message)}
		if !slices.ContainsFunc(faults, func(other fault.Fault) bool { return other.Offset == at }) && len(faults) < maxFaults {
			faults = append(faults, f)
		}
	}
	return faults
}

// plain parses with messages that people understand. The parser that compiles does not have them.
var plain, _ = parser.NewParser(parser.EnablePrattParser(true), parser.EnableOptionalSyntax(true),
	parser.Macros(parser.AllMacros...), parser.MaxRecursionDepth(100))

// explainSyntax says why a text cannot be parsed. Only the first error counts; the others follow from it.
func explainSyntax(text string, first *common.Error) fault.Fault {
	if _, found := plain.Parse(common.NewTextSource(text)); found != nil && len(found.GetErrors()) > 0 {
		first = found.GetErrors()[0]
	}
	at := offset(text, first.Location)
	message := strings.TrimPrefix(first.Message, "Syntax error: ")
	rest := text[at:]
	expected := ""
	if m := expecting.FindStringSubmatch(message); m != nil {
		expected = strings.Trim(m[1], "'")
		switch expected {
		case "expression":
			expected = "a value"
		case "identifier":
			expected = "a name"
		}
	}
	switch word := firstWord(rest); {
	case strings.HasPrefix(message, "unterminated"):
		message = "this text has no closing quote"
	case strings.HasPrefix(rest, "&") || word == "and" || word == "AND":
		message = "write && for and"
	case strings.HasPrefix(rest, "|") || word == "or" || word == "OR":
		message = "write || for or"
	case word == "not" || word == "NOT":
		message = "write ! for not"
	case strings.HasPrefix(rest, "="):
		message = "write == to compare"
	case strings.HasPrefix(message, "reserved identifier"):
		message = word + " is a reserved word"
	case strings.TrimSpace(rest) == "" && expected != "":
		message = "the expression ends where " + expected + " is expected"
	case strings.TrimSpace(rest) == "":
		message = "the expression ends too early"
	case expected != "":
		message = fmt.Sprintf("%s is expected before %q", expected, word)
	case strings.HasPrefix(message, "unexpected token after expression"):
		message = fmt.Sprintf("%q comes after the end of the expression; is an operator or a quote missing?", word)
	case strings.HasPrefix(message, "unexpected"):
		message = fmt.Sprintf("%q does not belong here", word)
	}
	return fault.Fault{Offset: at, Message: message}
}

var (
	expecting  = regexp.MustCompile(`(?:expecting|^expected) ('.'|[a-z]+)`)
	undeclared = regexp.MustCompile(`^undeclared reference to '([^']*)'`)
	overload   = regexp.MustCompile(`^found no matching overload for '([^']*)' applied to '(.*)'$`)
	selection  = regexp.MustCompile(`^type '(.*)' does not support field selection$`)
	mismatch   = regexp.MustCompile(`^expected type '(.*)' but found '(.*)'$`)
	literal    = regexp.MustCompile(`^invalid (\w+) argument`)
	identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*`)
)

// explainCheck says why an expression that can be parsed makes no sense.
func explainCheck(text string, at int, names Names, message string) string {
	switch {
	case undeclared.MatchString(message):
		return explainName(text[at:], undeclared.FindStringSubmatch(message)[1], names)
	case overload.MatchString(message):
		m := overload.FindStringSubmatch(message)
		return explainTypes(m[1], m[2])
	case selection.MatchString(message):
		return article(selection.FindStringSubmatch(message)[1]) + " has no fields"
	case mismatch.MatchString(message):
		m := mismatch.FindStringSubmatch(message)
		return fmt.Sprintf("%s is expected, this is %s", article(m[1]), article(m[2]))
	case literal.MatchString(message):
		switch kind := literal.FindStringSubmatch(message)[1]; kind {
		case "duration":
			return `this is not a duration, such as "90s" or "1h30m"`
		case "timestamp":
			return `this is not a timestamp, such as "2027-03-28T02:30:00Z"`
		case "matches":
			return "this is not a regular expression (RE2 syntax)"
		}
	}
	return strings.TrimPrefix(message, "Syntax error: ")
}

// explainName says what is known about a name that is not declared.
func explainName(rest, name string, names Names) string {
	if whole := identifier.FindString(rest); name == "run" && strings.HasPrefix(whole, "run.") {
		name = whole
	}
	called := strings.HasPrefix(strings.TrimLeft(strings.TrimPrefix(rest, name), " \t\n"), "(")
	switch root, _, _ := strings.Cut(name, "."); {
	case name == "env":
		return `env("NAME") can be used in headers, metadata and the environment of commands only`
	case (name == "item" || name == "index") && names&Item == 0:
		return name + " is known inside a branch of for_each only"
	case name == "action" && names&Action == 0:
		return "action is known in transitions only"
	case names&Run == 0 && (root == "params" || root == "result" || root == "results" || root == "run"):
		return root + " is not known here, outside of a run"
	case name == "run":
		return "run is not a value; it has " + strings.Join(known("run."), ", ")
	case name == "now":
		return "there is no clock in expressions, so that a resumed run computes the same again; use run.start or run.fire_time"
	case called:
		if best := fault.Closest(name, functionNames(names)); best != "" {
			return "there is no function " + name + "; did you mean " + best + "?"
		}
		return "there is no function " + name
	case strings.Contains(name, "."):
		return "there is no " + name + fault.DidYouMean(name, known(root+"."))
	}
	var variableNames []string
	for _, v := range variables {
		if names&v.set != 0 {
			variableNames = append(variableNames, v.name)
		}
	}
	if best := fault.Closest(name, variableNames); best != "" {
		return "there is no " + name + "; did you mean " + best + "?"
	}
	return fmt.Sprintf("there is no %s; known: %s; a text needs quotes: %q", name, strings.Join(variableNames, ", "), name)
}

// known are the variables whose names begin with a prefix.
func known(prefix string) []string {
	var list []string
	for _, v := range variables {
		if strings.HasPrefix(v.name, prefix) {
			list = append(list, v.name)
		}
	}
	return list
}

func functionNames(names Names) []string {
	var list []string
	for name := range environmentOf(names).Functions() {
		if unicode.IsLetter(rune(name[0])) && !strings.Contains(name, "@") {
			list = append(list, name)
		}
	}
	for _, m := range parser.AllMacros {
		list = append(list, m.Function())
	}
	return list
}

// explainTypes says which types an operator or a function was given. Applied is CEL's text, such as "(int, string)" or
// "string.(int)".
func explainTypes(function, applied string) string {
	receiver, list, _ := strings.Cut(applied, "(")
	var given []string
	if receiver = strings.TrimSuffix(receiver, "."); receiver != "" {
		given = append(given, receiver)
	}
	if list = strings.TrimSuffix(list, ")"); list != "" {
		given = append(given, splitTypes(list)...)
	}
	return takesNot(function, given)
}

// splitTypes splits a list of types at its outer commas.
func splitTypes(list string) []string {
	var parts []string
	depth, begin := 0, 0
	for i, r := range list {
		switch r {
		case '(':
			depth++
		case ')':
			depth--
		case ',':
			if depth == 0 {
				parts, begin = append(parts, strings.TrimSpace(list[begin:i])), i+1
			}
		}
	}
	return append(parts, strings.TrimSpace(list[begin:]))
}

// noOverload says at run time what takesNot says at compile time.
func noOverload(function string, args ...ref.Val) string {
	given := make([]string, len(args))
	for i, arg := range args {
		given[i] = arg.Type().TypeName()
	}
	return takesNot(function, given)
}

func takesNot(function string, given []string) string {
	for i := range given {
		given[i] = article(given[i])
	}
	name := shownFunction(function)
	hint := ""
	if name == "+" && slices.Contains(given, "a string") {
		hint = "; string(…) makes a string of a value"
	}
	return name + " does not take " + strings.Join(given, " and ") + hint
}

// article names a type in words.
func article(kind string) string {
	kind = strings.TrimPrefix(kind, "google.protobuf.")
	base, of, _ := strings.Cut(strings.TrimSuffix(kind, ")"), "(")
	switch strings.ToLower(base) {
	case "int", "uint":
		return "an integer"
	case "double":
		return "a number"
	case "string":
		return "a string"
	case "bool":
		return "a bool"
	case "bytes":
		return "bytes"
	case "list":
		if of = strings.TrimPrefix(article(of), "a "); of != "" && of != "value" {
			return "a list of " + strings.TrimPrefix(of, "an ") + "s"
		}
		return "a list"
	case "map", "struct":
		return "an object"
	case "timestamp":
		return "a timestamp"
	case "duration":
		return "a duration"
	case "null", "null_type":
		return "null"
	case "dyn", "any", "value":
		return "a value"
	case "type":
		return "a type"
	case "optional_type", "optional":
		return "an optional value"
	}
	return kind
}

func typeName(t *cel.Type) string { return article(t.String()) }

func valueName(v ref.Val) string { return article(v.Type().TypeName()) }

// explainEval says in plain words why an evaluation failed.
func explainEval(err error) error {
	message := err.Error()
	switch {
	case strings.Contains(message, "cost limit exceeded"):
		return fmt.Errorf("it was stopped because it takes too many steps (%d)", maxCost)
	case strings.HasPrefix(message, "no such key: "):
		return fmt.Errorf("there is no %q", strings.TrimPrefix(message, "no such key: "))
	case strings.HasPrefix(message, "no such overload"):
		function := strings.TrimPrefix(strings.TrimPrefix(message, "no such overload"), ": ")
		if function == "" {
			function = "an operator or a function"
		}
		return fmt.Errorf("%s does not take values of these types", shownFunction(function))
	case strings.HasPrefix(message, "type conversion error from "):
		var from, to string
		if n, _ := fmt.Sscanf(strings.ReplaceAll(message, "'", ""), "type conversion error from %s to %s", &from, &to); n == 2 {
			return fmt.Errorf("%s cannot be converted to %s", article(from), article(to))
		}
	case strings.HasPrefix(message, "internal error"):
		return fmt.Errorf("it cannot be evaluated") // a panic in the library; its text is of no use to a user
	}
	return err
}

// offset is the byte offset of a location, whose column counts runes.
func offset(text string, location common.Location) int {
	at := 0
	for line := 1; line < location.Line(); line++ {
		next := strings.IndexByte(text[at:], '\n')
		if next < 0 {
			return len(text)
		}
		at += next + 1
	}
	for column := 0; column < location.Column() && at < len(text); column++ {
		_, n := utf8.DecodeRuneInString(text[at:])
		at += n
	}
	return at
}

// beginning is where an undeclared name begins: the location of a call or a selection is that of its bracket or dot.
func beginning(text string, at int, name string) int {
	end := min(at+len(name)+1, len(text))
	if begin := strings.LastIndex(text[:end], name); begin >= 0 {
		return begin
	}
	return at
}

// firstWord is the word or the sign that a text begins with.
func firstWord(text string) string {
	if word := identifier.FindString(text); word != "" {
		return word
	}
	_, n := utf8.DecodeRuneInString(text)
	return text[:n]
}

// shownFunction is how a function or an operator is written.
func shownFunction(function string) string {
	if operator, ok := operators.FindReverse(function); ok && operator != "" {
		return operator
	}
	switch function {
	case operators.Index:
		return "[ ]"
	case operators.Conditional:
		return "? :"
	}
	return function
}
