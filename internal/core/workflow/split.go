package workflow

import "strconv"

// branchName names branch i of a split for events, results and keys.
func branchName(b Branch, i int, forEach bool) string {
	switch {
	case b.Name == "":
		return strconv.Itoa(i)
	case forEach:
		return b.Name + "-" + strconv.Itoa(i)
	}
	return b.Name
}
