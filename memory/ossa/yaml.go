package ossa

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"

	"go.yaml.in/yaml/v3"

	"github.com/heardlog/heardlog/internal/fault"
)

// ToJSON returns a document that is YAML or JSON as JSON. A text that begins with a brace or a
// bracket is JSON and returned as it is. Aliases are refused, since a short text with aliases can
// stand for a very long one. It returns fault.BadRequest for anything else than one YAML value.
func ToJSON(b []byte) ([]byte, error) {
	trimmed := bytes.TrimLeft(b, " \t\r\n")
	if len(trimmed) == 0 || trimmed[0] == '{' || trimmed[0] == '[' {
		return b, nil
	}
	dec := yaml.NewDecoder(bytes.NewReader(b))
	var node yaml.Node
	if err := dec.Decode(&node); err != nil {
		return nil, fault.New(fault.BadRequest, "the document is not valid YAML or JSON: %s", err)
	}
	if err := dec.Decode(&yaml.Node{}); !errors.Is(err, io.EOF) {
		return nil, fault.New(fault.BadRequest, "the document holds more than one YAML value")
	}
	if hasAlias(&node) {
		return nil, fault.New(fault.BadRequest, "the document has a YAML alias; write the value out")
	}
	var v any
	if err := node.Decode(&v); err != nil {
		return nil, fault.New(fault.BadRequest, "the document is not valid YAML: %s", err)
	}
	out, err := json.Marshal(v)
	if err != nil { // a key that is no text, or a number such as .inf
		return nil, fault.New(fault.BadRequest, "the document cannot be written as JSON: %s", err)
	}
	return out, nil
}

func hasAlias(n *yaml.Node) bool {
	if n.Kind == yaml.AliasNode {
		return true
	}
	for _, child := range n.Content {
		if hasAlias(child) {
			return true
		}
	}
	return false
}
