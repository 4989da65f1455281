package fault

import "strconv"

// Field is the path of a field of the message at path.
func Field(path, name string) string {
	if path == "" {
		return name
	}
	if name == "" || name[0] == '[' {
		return path + name
	}
	return path + "." + name
}

// Index is the path of an entry of the list at path.
func Index(path string, i int) string {
	return path + "[" + strconv.Itoa(i) + "]"
}

// Key is the path of an entry of the map at path.
func Key(path, key string) string {
	return path + "[" + strconv.Quote(key) + "]"
}

// Step is one step of a path: into a field, an entry of a list, or an entry of a map.
type Step struct {
	Field string // empty: an entry
	Index int    // -1: not an entry of a list
	Key   string // of an entry of a map
}

// Split takes a path apart. It stops where the path is misspelt.
func Split(path string) []Step {
	var steps []Step
	for path != "" {
		if path[0] == '[' {
			end := entryEnd(path)
			if end < 0 {
				return steps
			}
			inside := path[1:end]
			if i, err := strconv.Atoi(inside); err == nil {
				steps = append(steps, Step{Index: i})
			} else if key, err := strconv.Unquote(inside); err == nil {
				steps = append(steps, Step{Index: -1, Key: key})
			} else {
				return steps
			}
			path = path[end+1:]
			continue
		}
		if path[0] == '.' {
			path = path[1:]
		}
		end := 0
		for end < len(path) && path[end] != '.' && path[end] != '[' {
			end++
		}
		if end == 0 {
			return steps
		}
		steps = append(steps, Step{Field: path[:end], Index: -1})
		path = path[end:]
	}
	return steps
}

// entryEnd finds the ] that ends the entry a path begins with; -1 if there is none.
func entryEnd(path string) int {
	quoted := false
	for i := 1; i < len(path); i++ {
		switch {
		case quoted && path[i] == '\\':
			i++
		case path[i] == '"':
			quoted = !quoted
		case path[i] == ']' && !quoted:
			return i
		}
	}
	return -1
}

// Last is the end of a path that tells a reader which field is meant: the last field, with its entries.
func Last(path string) string { return path[lastDot(path)+1:] }

// Parent is the path of the message that a field is in; empty for a field of the message that paths begin at.
func Parent(path string) string { return path[:max(lastDot(path), 0)] }

// lastDot finds the last dot that is not in a key; -1 if there is none.
func lastDot(path string) int {
	last, quoted := -1, false
	for i := 0; i < len(path); i++ {
		switch {
		case quoted && path[i] == '\\':
			i++
		case path[i] == '"':
			quoted = !quoted
		case path[i] == '.' && !quoted:
			last = i
		}
	}
	return last
}

// Within says whether a path is another one or leads below it.
func Within(path, above string) bool {
	if len(path) < len(above) || path[:len(above)] != above {
		return false
	}
	rest := path[len(above):]
	return rest == "" || above == "" || rest[0] == '.' || rest[0] == '['
}
