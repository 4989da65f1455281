package measure

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Column is a column of a table: a measured value, in some unit.
type Column struct {
	Key   string  `json:"key"`
	Title string  `json:"title"`
	Scale float64 `json:"scale,omitempty"` // what values are multiplied with to be shown; 0: 1
}

// Table is one comparison. Ratio, if set, is the column whose ratio to the first row is shown.
type Table struct {
	Title   string   `json:"title"`
	Columns []Column `json:"columns"`
	Ratio   string   `json:"ratio,omitempty"`
	Rows    []Row    `json:"rows"`
}

// Goal is a figure that is to be reached.
type Goal struct {
	Text  string  `json:"text"`
	Value float64 `json:"value"`
	Least bool    `json:"least"` // the value shall be at least the bound, else at most
	Bound float64 `json:"bound"`
	Exact bool    `json:"exact"` // does not depend on the machine or its neighbours
}

// Met reports whether it is reached.
func (g Goal) Met() bool {
	if g.Least {
		return g.Value >= g.Bound
	}
	return g.Value <= g.Bound
}

// Result is what a question found.
type Result struct {
	Number  int     `json:"number"`
	Name    string  `json:"name"`
	Title   string  `json:"title"`
	Notes   string  `json:"notes"`
	Tables  []Table `json:"tables"`
	Goals   []Goal  `json:"goals"`
	Machine string  `json:"machine"`
	Quick   bool    `json:"quick"`
	Date    string  `json:"date"`
}

// Value is a median of a row of a table; NaN if there is none.
func (t *Table) Value(row, key string) float64 {
	for _, r := range t.Rows {
		if v, ok := r.Median[key]; ok && r.Name == row {
			return v
		}
	}
	return math.NaN()
}

// Save writes the result as JSON.
func (r *Result) Save(dir string) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, r.Name+".json"), append(data, '\n'), 0o644)
}

// Load reads the results of a folder, by number.
func Load(dir string) (map[int]*Result, error) {
	out := map[int]*Result{}
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		r := &Result{}
		if err := json.Unmarshal(data, r); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		out[r.Number] = r
	}
	return out, err
}

// Markdown is the result for people.
func (r *Result) Markdown() string {
	var out strings.Builder
	fmt.Fprintf(&out, "## %d. %s\n\n", r.Number, r.Title)
	if r.Notes != "" {
		fmt.Fprintf(&out, "%s\n\n", r.Notes)
	}
	for i := range r.Tables {
		r.Tables[i].markdown(&out)
	}
	if len(r.Goals) > 0 {
		out.WriteString("| goal | measured | wanted | |\n|---|---|---|---|\n")
		for _, g := range r.Goals {
			sign, met := "≤", "**short**"
			if g.Least {
				sign = "≥"
			}
			if g.Met() {
				met = "met"
			}
			fmt.Fprintf(&out, "| %s | %s | %s %s | %s |\n", g.Text, number(g.Value), sign, number(g.Bound), met)
		}
		out.WriteString("\n")
	}
	mode := ""
	if r.Quick {
		mode = ", a quick run"
	}
	fmt.Fprintf(&out, "%s; %s%s.\n", r.Date, r.Machine, mode)
	return out.String()
}

func (t *Table) markdown(out *strings.Builder) {
	fmt.Fprintf(out, "**%s**\n\n|", t.Title)
	heads := []string{""}
	for _, c := range t.Columns {
		heads = append(heads, c.Title)
	}
	if t.Ratio != "" {
		heads = append(heads, "ratio")
	}
	heads = append(heads, "rounds", "others")
	for _, h := range heads {
		fmt.Fprintf(out, " %s |", h)
	}
	fmt.Fprintf(out, "\n|%s\n", strings.Repeat("---|", len(heads)))
	for _, row := range t.Rows {
		fmt.Fprintf(out, "| %s |", row.Name)
		for _, c := range t.Columns {
			fmt.Fprintf(out, " %s |", cell(row, c))
		}
		if t.Ratio != "" {
			fmt.Fprintf(out, " %s |", number(row.Median[t.Ratio]/t.Rows[0].Median[t.Ratio]))
		}
		rounds := strconv.Itoa(row.Rounds)
		if row.Noisy > 0 {
			rounds += fmt.Sprintf(" (%d noisy)", row.Noisy)
		}
		fmt.Fprintf(out, " %s | %s |\n", rounds, number(row.Others))
		if row.Fault != "" {
			fmt.Fprintf(out, "| %s | %s |\n", row.Name, strings.ReplaceAll(row.Fault, "\n", " "))
		}
	}
	out.WriteString("\n")
}

// cell is a median with its spread.
func cell(row Row, c Column) string {
	scale := c.Scale
	if scale == 0 {
		scale = 1
	}
	v, ok := row.Median[c.Key]
	if !ok {
		return "–"
	}
	least, most := row.Least[c.Key]*scale, row.Most[c.Key]*scale
	text := number(v * scale)
	if number(least) != number(most) {
		text += fmt.Sprintf(" (%s–%s)", number(least), number(most))
	}
	return text
}

// number is v with three digits that count.
func number(v float64) string {
	switch a := math.Abs(v); {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return "–"
	case a >= 1e6:
		return strconv.FormatFloat(v/1e6, 'f', 2, 64) + "M"
	case a >= 10e3:
		return strconv.FormatFloat(v/1e3, 'f', 1, 64) + "k"
	case a >= 100 || v == math.Trunc(v):
		return strconv.FormatFloat(v, 'f', 0, 64)
	case a >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case a >= 1:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
	return strconv.FormatFloat(v, 'g', 2, 64)
}
