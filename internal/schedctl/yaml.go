package schedctl

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// yamlOf writes a JSON document as YAML, in the same order.
func yamlOf(document []byte) ([]byte, error) {
	decoder := json.NewDecoder(bytes.NewReader(document))
	decoder.UseNumber()
	node, err := yamlNode(decoder)
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	encoder := yaml.NewEncoder(&text)
	encoder.SetIndent(2)
	if err := errors.Join(encoder.Encode(node), encoder.Close()); err != nil {
		return nil, err
	}
	return text.Bytes(), nil
}

// oldYAML matches what is text in YAML 1.2, but a truth value or a number to base 60 in 1.1,
// which many still read: "no", "12:30".
var oldYAML = regexp.MustCompile(`^(?i:y|n|yes|no|on|off|[-+]?[0-9][0-9_]*(:[0-9]+)+(\.[0-9_]*)?)$`)

func yamlNode(decoder *json.Decoder) (*yaml.Node, error) {
	token, err := decoder.Token()
	if err != nil {
		return nil, err
	}
	switch token := token.(type) {
	case json.Delim:
		node := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
		if token == '[' {
			node = &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		}
		for decoder.More() { // a key is a value of its own here
			child, err := yamlNode(decoder)
			if err != nil {
				return nil, err
			}
			node.Content = append(node.Content, child)
		}
		_, err := decoder.Token() // the closing one
		return node, err
	case json.Number:
		tag := "!!int"
		if strings.ContainsAny(token.String(), ".eE") {
			tag = "!!float"
		}
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: token.String()}, nil
	case string:
		node := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: token}
		if oldYAML.MatchString(token) {
			node.Style = yaml.DoubleQuotedStyle
		}
		return node, nil
	case bool:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: fmt.Sprint(token)}, nil
	default:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}, nil
	}
}

// jsonOf reads YAML (JSON is YAML, too) as JSON. Dates are text, as JSON has none.
func jsonOf(text []byte) ([]byte, error) {
	var root yaml.Node
	if err := yaml.Unmarshal(text, &root); err != nil {
		return nil, err
	}
	datesAsText(&root)
	var value any
	if err := root.Decode(&value); err != nil {
		return nil, err
	}
	return json.Marshal(value)
}

func datesAsText(node *yaml.Node) {
	if node.Kind == yaml.ScalarNode && node.ShortTag() == "!!timestamp" {
		node.Tag = "!!str"
	}
	for _, child := range node.Content {
		datesAsText(child)
	}
}
