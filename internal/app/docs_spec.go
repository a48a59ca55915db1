package app

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/url"
	"strings"

	"go.yaml.in/yaml/v3"
)

// specNode is a value of openapi.yaml with its order kept and its references resolvable. A nil *specNode is a value that is not there, and every
// method takes it, since most of a description is optional.
type specNode struct {
	node *yaml.Node
	root *specRoot
}

// specRoot gives each place in the document one specNode, so that places can be compared.
type specRoot struct {
	top   *yaml.Node
	nodes map[*yaml.Node]*specNode
}

// parseSpec reads the description and checks that every reference in it leads somewhere.
func parseSpec(data []byte) (*specNode, error) {
	var top yaml.Node
	if err := yaml.Unmarshal(data, &top); err != nil {
		return nil, fmt.Errorf("openapi.yaml: %w", err)
	}
	if len(top.Content) != 1 || top.Content[0].Kind != yaml.MappingNode {
		return nil, errors.New("openapi.yaml: is not an object")
	}
	root := &specRoot{top: top.Content[0], nodes: map[*yaml.Node]*specNode{}}
	doc := root.at(root.top)
	return doc, doc.checkRefs()
}

func (r *specRoot) at(n *yaml.Node) *specNode {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	s := r.nodes[n]
	if s == nil {
		s = &specNode{node: n, root: r}
		r.nodes[n] = s
	}
	return s
}

func (n *specNode) checkRefs() error {
	for key, m := range n.members() {
		if key == "$ref" && m.node.Kind == yaml.ScalarNode && n.deref() == nil {
			return fmt.Errorf("openapi.yaml line %d: %s leads nowhere", m.node.Line, m.value())
		}
		if err := m.checkRefs(); err != nil {
			return err
		}
	}
	for _, m := range n.items() {
		if err := m.checkRefs(); err != nil {
			return err
		}
	}
	return nil
}

// get gives a member of an object, or nil.
func (n *specNode) get(key string) *specNode {
	for k, m := range n.members() {
		if k == key {
			return m
		}
	}
	return nil
}

// members gives an object's members in order.
func (n *specNode) members() iter.Seq2[string, *specNode] {
	return func(yield func(string, *specNode) bool) {
		if n == nil || n.node.Kind != yaml.MappingNode {
			return
		}
		for i := 0; i+1 < len(n.node.Content); i += 2 {
			if !yield(n.node.Content[i].Value, n.root.at(n.node.Content[i+1])) {
				return
			}
		}
	}
}

// items gives an array's items.
func (n *specNode) items() []*specNode {
	if n == nil || n.node.Kind != yaml.SequenceNode {
		return nil
	}
	out := make([]*specNode, len(n.node.Content))
	for i, c := range n.node.Content {
		out[i] = n.root.at(c)
	}
	return out
}

func (n *specNode) value() string {
	if n == nil {
		return ""
	}
	return n.node.Value
}

func (n *specNode) text(key string) string { return n.get(key).value() }

// deref follows $ref, a JSON pointer into the same document; nil if it leads nowhere.
func (n *specNode) deref() *specNode {
	for range 10 { // a chain longer than that is a circle
		ref := n.get("$ref")
		if ref == nil {
			return n
		}
		pointer, ok := strings.CutPrefix(ref.value(), "#/")
		if !ok {
			return nil
		}
		to := n.root.at(n.root.top)
		for part := range strings.SplitSeq(pointer, "/") {
			part, err := url.PathUnescape(part)
			if err != nil {
				return nil
			}
			to = to.get(strings.ReplaceAll(strings.ReplaceAll(part, "~1", "/"), "~0", "~"))
		}
		if n = to; n == nil {
			return nil
		}
	}
	return nil
}

// refName gives the last part of $ref, the name of the component; "" for a value of its own.
func (n *specNode) refName() string {
	ref := n.text("$ref")
	return ref[strings.LastIndexByte(ref, '/')+1:]
}

// typeOf gives a schema's type in words, and the schema it names.
func typeOf(s *specNode) (words, ref string) {
	if s == nil {
		return "", ""
	}
	if ref := s.refName(); ref != "" {
		return ref, ref
	}
	var parts []string
	if t := s.get("type"); t != nil {
		names := t.items()
		if len(names) == 0 {
			parts = append(parts, t.value())
		}
		for _, name := range names {
			parts = append(parts, name.value())
		}
	}
	words = strings.Join(parts, " or ")
	if items := s.get("items"); items != nil {
		if of, named := typeOf(items); of != "" {
			words, ref = words+" of "+of, named
		}
	}
	for _, c := range []struct{ key, words string }{
		{"const", "always %s"}, {"minimum", "at least %s"}, {"maximum", "at most %s"}, {"minLength", "at least %s long"}, {"maxLength", "at most %s characters"},
		{"minItems", "at least %s"}, {"maxItems", "at most %s"}, {"maxProperties", "at most %s keys"}, {"pattern", "%s"}, {"default", "default %s"},
	} {
		if v := s.get(c.key); v != nil {
			words += ", " + fmt.Sprintf(c.words, v.value())
		}
	}
	if values := s.get("enum").items(); len(values) > 0 {
		var all []string
		for _, v := range values {
			all = append(all, v.value())
		}
		words += ": " + strings.Join(all, ", ")
	}
	return strings.TrimPrefix(strings.TrimPrefix(words, ", "), ": "), ref
}

// show gives an example as text: strings as they are, everything else as JSON in the order of the description.
func (n *specNode) show() string {
	if n == nil {
		return ""
	}
	if n.node.Kind == yaml.ScalarNode && n.node.Tag == "!!str" {
		return strings.TrimRight(n.node.Value, "\n")
	}
	var out bytes.Buffer
	if err := json.Indent(&out, n.json(nil), "", "  "); err != nil {
		return n.value()
	}
	return out.String()
}

// json appends the value as JSON.
func (n *specNode) json(b []byte) []byte {
	switch n.node.Kind {
	case yaml.MappingNode:
		b = append(b, '{')
		first := true
		for k, m := range n.members() {
			if !first {
				b = append(b, ',')
			}
			first = false
			b = m.json(append(quote(b, k), ':'))
		}
		return append(b, '}')
	case yaml.SequenceNode:
		b = append(b, '[')
		for i, m := range n.items() {
			if i > 0 {
				b = append(b, ',')
			}
			b = m.json(b)
		}
		return append(b, ']')
	}
	switch n.node.Tag {
	case "!!int", "!!float", "!!bool", "!!null":
		return append(b, n.node.Value...)
	}
	return quote(b, n.node.Value)
}

func quote(b []byte, s string) []byte {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil { // a string always encodes
		return append(b, `""`...)
	}
	return append(b, bytes.TrimSpace(out.Bytes())...)
}
