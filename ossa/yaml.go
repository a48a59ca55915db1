package ossa

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/text"
)

// ToJSON returns a document that is YAML or JSON as JSON. A text that begins with a brace or a
// bracket is JSON and returned as it is. A line %YAML 1.2 is allowed. Aliases are refused, since a
// short text with aliases can stand for a very long one. It returns fault.BadRequest for anything
// else than one YAML value.
func ToJSON(b []byte) ([]byte, error) {
	trimmed := bytes.TrimLeft(b, " \t\r\n")
	if len(trimmed) == 0 {
		return nil, fault.New(fault.BadRequest, "the document is empty")
	}
	if trimmed[0] == '{' || trimmed[0] == '[' {
		return b, nil
	}
	// The library reads what both versions have in common, but wants the older number.
	if rest, ok := bytes.CutPrefix(trimmed, []byte("%YAML 1.2")); ok {
		b = append([]byte("%YAML 1.1"), rest...)
	}
	dec := yaml.NewDecoder(bytes.NewReader(b))
	var node yaml.Node
	if err := dec.Decode(&node); err != nil {
		return nil, fault.New(fault.BadRequest, "the document is not valid YAML or JSON: %s", err)
	}
	if err := dec.Decode(&yaml.Node{}); !errors.Is(err, io.EOF) {
		return nil, fault.New(fault.BadRequest, "the document holds more than one YAML value")
	}
	if err := checkYAML(&node); err != nil {
		return nil, err
	}
	var v any
	if err := node.Decode(&v); err != nil {
		return nil, fault.New(fault.BadRequest, "the document is not valid YAML: %s", err)
	}
	out, err := json.Marshal(v)
	if err != nil {
		return nil, fault.New(fault.BadRequest, "the document cannot be written as JSON: %s", err)
	}
	return out, nil
}

// checkYAML returns an error if a part of a document has no form in JSON, or is an alias.
func checkYAML(n *yaml.Node) error {
	for i, child := range n.Content {
		if err := checkYAML(child); err != nil {
			return err
		}
		if n.Kind == yaml.MappingNode && i%2 == 0 && (child.Kind != yaml.ScalarNode || child.ShortTag() != "!!str" && child.ShortTag() != "!!merge") {
			return fault.New(fault.BadRequest, "line %d of the document has a key that is not text: %s; write it in quotes", child.Line, shortened(child))
		}
	}
	switch {
	case n.Kind == yaml.AliasNode:
		return fault.New(fault.BadRequest, "line %d of the document has a YAML alias; write the value out", n.Line)
	case n.Kind == yaml.ScalarNode && n.ShortTag() == "!!float" && strings.Trim(n.Value, "+-.0123456789eE_") != "":
		return fault.New(fault.BadRequest, "line %d of the document has the number %s, which JSON does not have", n.Line, shortened(n))
	}
	return nil
}

// shortened returns a value for an error.
func shortened(n *yaml.Node) string {
	if n.Kind != yaml.ScalarNode {
		return "a list or a mapping"
	}
	return text.Clip(n.Value, 60)
}
