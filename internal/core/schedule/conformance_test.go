package schedule

import (
	"encoding/csv"
	"errors"
	"os"
	"strings"
	"testing"
	"time"
)

// TestConformance runs the cases that other schedulers got wrong. Each row of
// the table names where it was seen.
func TestConformance(t *testing.T) {
	file, err := os.Open("testdata/cron-cases.csv")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	rows, err := csv.NewReader(file).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) < 60 {
		t.Fatalf("only %d rows", len(rows))
	}
	for _, row := range rows[1:] {
		id, category, text, zone, after, want := row[0], row[1], row[2], row[3], row[4], row[5]
		t.Run(id+" "+category, func(t *testing.T) {
			s, err := Compile(Spec{Cron: text, Zone: zone}, Options{})
			switch want {
			case "ERROR":
				if err == nil || errors.Is(err, ErrNever) {
					t.Errorf("%q in %s: error %v, want one of the syntax", text, zone, err)
				}
				return
			case "NEVER":
				if !errors.Is(err, ErrNever) {
					t.Errorf("%q in %s: error %v, want ErrNever", text, zone, err)
				}
				return
			}
			if err != nil {
				t.Fatalf("%q in %s: %v", text, zone, err)
			}
			at, err := time.Parse(time.RFC3339, after)
			if err != nil {
				t.Fatal(err)
			}
			for i, w := range strings.Fields(want) {
				at = s.Next(at, Anchors{})
				if got := at.Format(time.RFC3339); got != w {
					t.Fatalf("%q in %s after %s: fire time %d is %s, want %s", text, zone, after, i+1, got, w)
				}
			}
		})
	}
}
