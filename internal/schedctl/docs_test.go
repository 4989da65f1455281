package schedctl

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// TestDocs holds docs/schedctl.md true: it has each command and flag there is, and no other.
func TestDocs(t *testing.T) {
	text, err := os.ReadFile("../../docs/schedctl.md")
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]string{}
	for part := range strings.SplitSeq(string(text), "\n#") {
		title, body, _ := strings.Cut(part, "\n")
		sections[strings.TrimLeft(title, "# ")] = body
	}
	root := (&app{}).root()
	root.InitDefaultCompletionCmd()
	checkFlags(t, "Global flags", sections["Global flags"], root.PersistentFlags())
	for _, command := range root.Commands() {
		if command.Name() == "help" {
			continue
		}
		section, documented := sections[command.CommandPath()]
		if !documented {
			t.Errorf("%s is not documented", command.CommandPath())
			continue
		}
		delete(sections, command.CommandPath())
		checkFlags(t, command.CommandPath(), section, command.LocalNonPersistentFlags())
		checkCommand(t, command)
	}
	for title := range sections {
		if strings.HasPrefix(title, "schedctl ") {
			t.Errorf("there is no command %q", title)
		}
	}
	for _, code := range []int{ExitOK, ExitOther, ExitUsage, ExitNotFound, ExitRefused, ExitUnavailable, ExitRunFailed, ExitInvalid, ExitInterrupted} {
		if !strings.Contains(sections["Exit codes"], fmt.Sprintf("\n| %d |", code)) {
			t.Errorf("exit code %d is not documented", code)
		}
	}
}

// tableFlag finds flags in the first column of a table.
var tableFlag = regexp.MustCompile("`--([a-z-]+)`")

func checkFlags(t *testing.T, title, section string, flags *pflag.FlagSet) {
	t.Helper()
	documented := map[string]bool{}
	for line := range strings.SplitSeq(section, "\n") {
		if row, isRow := strings.CutPrefix(line, "| "); isRow {
			first, _, _ := strings.Cut(row, " | ")
			for _, match := range tableFlag.FindAllStringSubmatch(first, -1) {
				documented[match[1]] = true
				if flags.Lookup(match[1]) == nil {
					t.Errorf("%s: there is no flag --%s", title, match[1])
				}
			}
		}
	}
	flags.VisitAll(func(flag *pflag.Flag) {
		if !documented[flag.Name] && flag.Name != "help" {
			t.Errorf("%s: flag --%s is not documented", title, flag.Name)
		}
	})
}

// checkCommand holds that the examples in the help of a command are command lines it understands.
func checkCommand(t *testing.T, command *cobra.Command) {
	t.Helper()
	for line := range strings.SplitSeq(command.Example, "\n") {
		for _, part := range strings.Split(line, "|") {
			words := strings.Fields(regexp.MustCompile(`'[^']*'`).ReplaceAllString(part, "x"))
			if len(words) < 2 || words[0] != "schedctl" {
				continue
			}
			root := (&app{}).root()
			found, args, err := root.Find(words[1:])
			if err == nil {
				err = found.ParseFlags(args)
			}
			if err != nil {
				t.Errorf("example %q: %v", line, err)
			}
		}
	}
}
