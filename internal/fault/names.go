package fault

import (
	"slices"
	"strings"
)

// namesShown bounds a list of names in a message.
const namesShown = 20

// DidYouMean ends a message about a name that is not among known: with the one that was probably meant, else with all
// of them. It begins with "; ", or is empty if nothing is known.
func DidYouMean(name string, known []string) string {
	if best := Closest(name, known); best != "" {
		return "; did you mean " + best + "?"
	}
	if len(known) == 0 {
		return ""
	}
	known = slices.Sorted(slices.Values(known))
	if len(known) > namesShown {
		known = append(known[:namesShown], "…")
	}
	return "; known: " + strings.Join(known, ", ")
}

// Closest is the known name that a misspelt one was probably meant to be; empty if none is near.
func Closest(name string, known []string) string {
	return Near(name, known, (len(fold(name))+2)/3)
}

// Near is the known name that is nearest to a misspelt one, at most some letters away; empty if there is none.
func Near(name string, known []string, letters int) string {
	folded := fold(name)
	best, least := "", letters+1
	for _, k := range known {
		if d := distance(folded, fold(k), least); d < least {
			best, least = k, d
		}
	}
	return best
}

// fold drops what people get wrong without meaning another name: case, and how words are joined.
func fold(name string) string {
	return strings.Map(func(r rune) rune {
		if r == '_' || r == '-' || r == ' ' || r == '.' {
			return -1
		}
		return r
	}, strings.ToLower(name))
}

// distance is the number of letters added, dropped, changed or swapped with their neighbour between a and b (optimal
// string alignment); limit if it is at least that.
func distance(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit || len(a) > 128 || len(b) > 128 {
		return limit
	}
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return min(last[len(b)], limit)
}
