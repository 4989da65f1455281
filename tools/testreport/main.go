// Command testreport reads `go test -json` on standard input, prints one line
// for each package and the output of what failed, and ends with the counts.
// It exits 1 when a test failed, was skipped or did not end, when a package did
// not build, or when nothing ran: a green run means that every test ran.
package main

import (
	"fmt"
	"os"
)

func main() {
	report := newReport(os.Stdout)
	if err := report.read(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "testreport:", err)
		os.Exit(1)
	}
	if !report.close() {
		os.Exit(1)
	}
}
