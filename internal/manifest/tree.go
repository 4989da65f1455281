package manifest

import (
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxAliases bounds a chain of aliases; YAML lets an alias stand for an alias.
const maxAliases = 16

// follow gives the node that an alias stands for, or the node itself.
func follow(n *yaml.Node) *yaml.Node {
	for range maxAliases {
		if n.Kind != yaml.AliasNode {
			break
		}
		n = n.Alias
	}
	return n
}

// entry is one entry of an object.
type entry struct{ key, value *yaml.Node }

// entries lists the entries of an object, those that it merges with << last, without those that it has itself.
func entries(object *yaml.Node) []entry {
	var own, merged []entry
	for i := 0; i+1 < len(object.Content); i += 2 {
		key, value := object.Content[i], object.Content[i+1]
		if isMerge(key) {
			merged = append(merged, mergedEntries(value, 0)...)
			continue
		}
		own = append(own, entry{key, value})
	}
	if merged == nil {
		return own
	}
	has := map[string]bool{}
	for _, e := range own {
		has[e.key.Value] = true
	}
	for _, e := range merged {
		if !has[e.key.Value] {
			has[e.key.Value] = true
			own = append(own, e)
		}
	}
	return own
}

func isMerge(key *yaml.Node) bool {
	return key.Kind == yaml.ScalarNode && key.Tag == "!!merge"
}

// mergedEntries lists the entries that a << brings: of an object, or of a list of objects, the first of which counts.
func mergedEntries(value *yaml.Node, depth int) []entry {
	value = follow(value)
	var list []entry
	switch {
	case depth > maxAliases:
	case value.Kind == yaml.MappingNode:
		for i := 0; i+1 < len(value.Content); i += 2 {
			if isMerge(value.Content[i]) {
				list = append(list, mergedEntries(value.Content[i+1], depth+1)...)
			} else {
				list = append(list, entry{value.Content[i], value.Content[i+1]})
			}
		}
	case value.Kind == yaml.SequenceNode:
		for _, member := range value.Content {
			list = append(list, mergedEntries(member, depth+1)...)
		}
	}
	return list
}

// camelCase is the JSON name of a field.
func camelCase(name string) string {
	parts := strings.Split(name, "_")
	for i := 1; i < len(parts); i++ {
		if parts[i] != "" {
			parts[i] = strings.ToUpper(parts[i][:1]) + parts[i][1:]
		}
	}
	return strings.Join(parts, "")
}
