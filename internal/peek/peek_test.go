package peek_test

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/heardlog/heardlog/internal/peek"
)

// TestAt checks what stands at a path, and where.
func TestAt(t *testing.T) {
	t.Parallel()
	const doc = ` {"a":{"b":[1,{"c\u0064":"x\"}"},[]]},"a":2, "null" : null,"sip.number":"+1"} `
	for path, want := range map[string]string{
		"a.b.0": "1", "a.b.1": `{"c\u0064":"x\"}"}`, "a.b.1.cd": `"x\"}"`, "a.b.2": "[]", "a.b.3": "", "a.b.-1": "", "a.b.x": "",
		"a.c": "", "null": "null", "null.x": "", "b": "", "": "", "a.": "", "a.b.0.x": "",
	} {
		v := peek.Parse([]byte(doc)).Path(path)
		if string(v) != want || v.Exists() != (want != "") {
			t.Errorf("%q: %s, want %s", path, v, want)
		}
	}
	body := []byte(doc)
	if v := peek.At(body, "sip.number"); v.Str() != "+1" || string(body[v.Offset(body):][:len(v)]) != `"+1"` {
		t.Errorf("a name with a dot: %s at %d", v, v.Offset(body))
	}
	if got := string(peek.Replace([]byte(`{"a":1,"b":[2]}`), nil, "")); got != `{"a":1,"b":[2]}` {
		t.Errorf("what was not found is replaced: %s", got)
	}
	body = []byte(`{"a":1,"b":[2,3]}`)
	if got := string(peek.Replace(body, peek.At(body, "b", "0"), `"x"`)); got != `{"a":1,"b":["x",3]}` {
		t.Errorf("replaced: %s", got)
	}
}

// TestValues checks how values are read as others.
func TestValues(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]struct {
		str, text string
		i         int64
		f         float64
		b         bool
		n         int // elements
	}{
		``: {}, `null`: {}, `true`: {text: "true", b: true, n: 1}, `false`: {text: "false", n: 1},
		`"460"`: {"460", "460", 460, 460, false, 1}, `"0.5"`: {"0.5", "0.5", 0, 0.5, false, 1}, `"True"`: {"True", "True", 0, 0, true, 1},
		`"x"`: {"x", "x", 0, 0, false, 1}, `"\u00e9"`: {"é", "é", 0, 0, false, 1}, `"NaN"`: {"NaN", "NaN", 0, 0, false, 1},
		`460`: {"", "460", 460, 460, true, 1}, `-1.5`: {"", "-1.5", -1, -1.5, true, 1}, `5.0`: {"", "5", 5, 5, true, 1}, `1e3`: {"", "1000", 1000, 1000, true, 1}, `0`: {"", "0", 0, 0, false, 1},
		`9007199254740993`: {"", "9007199254740993", 9007199254740993, 9007199254740993, true, 1},
		`1e18`:             {"", "1000000000000000000", 1e18, 1e18, true, 1}, `-1e300`: {"", string(peek.Value("-1e300").Text()), math.MinInt64, -1e300, true, 1},
		`[1, [2] ,{}]`: {text: "[1, [2] ,{}]", n: 3}, `[]`: {text: "[]"}, `{"a":1}`: {text: `{"a":1}`, n: 1},
	} {
		v := peek.Parse([]byte(in))
		if v.Str() != want.str || v.Text() != want.text || v.Int() != want.i || v.Float() != want.f || v.Bool() != want.b || len(v.List()) != want.n {
			t.Errorf("%s: %q %q %d %v %v %d, want %+v", in, v.Str(), v.Text(), v.Int(), v.Float(), v.Bool(), len(v.List()), want)
		}
	}
}

// FuzzObject checks that the members of an object and the elements of an array are those that
// encoding/json finds, and that nothing panics on other bytes.
func FuzzObject(f *testing.F) {
	for _, s := range []string{`{"a":"\\\"","b":[1,"]",{"c":null}],"":{}}`, `[1,"a,b",[],{"x":[{}]}]`, `{`, `{"a"`, `{"a":`, `["`, `"\`, `[,]`, ` {"a" : 1 , "b":2 } `} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		v := peek.Parse(doc)
		_, _, _, _ = v.Text(), v.Int(), v.Bool(), v.At("a", "0", "b")
		got := map[string]json.RawMessage{}
		_ = peek.Object(v, func(name, value []byte) error {
			got[peek.Unquote(name)] = value
			return nil
		})
		n := len(v.List())
		var object map[string]json.RawMessage
		if json.Unmarshal(doc, &object) == nil && object != nil {
			if len(got) != len(object) {
				t.Fatalf("%q: %d members, want %d", doc, len(got), len(object))
			}
			for name, value := range object {
				if string(got[name]) != string(value) {
					t.Fatalf("%q: member %q is %s, want %s", doc, name, got[name], value)
				}
			}
		}
		var array []json.RawMessage
		if json.Unmarshal(doc, &array) == nil && array != nil && n != len(array) {
			t.Fatalf("%q: %d elements, want %d", doc, n, len(array))
		}
	})
}
