package responses

import (
	"github.com/go-json-experiment/json/jsontext"
)

// Prepared is a request with generate: false, which brings input before the request that continues
// it. Only WebSockets have such requests.
type Prepared struct {
	ID      string
	members map[string]jsontext.Value
}

// Prepare returns a prepared request. Its members are those of the request without the ones of a
// socket alone. It fails with fault.Invalid if its input is neither a string nor an array.
func Prepare(id string, members map[string]jsontext.Value) (*Prepared, error) {
	_, err := itemsOf(members["input"])
	return &Prepared{id, members}, err
}

// Events returns the events that answer the request: it has no output. now is in Unix seconds.
func (p *Prepared) Events(now int64) [][]byte {
	a := (&Request{members: p.members}).newAnswer(Ref{}, now)
	a.res.ID = p.ID
	var out [][]byte
	a.emit = func(kind string, e event) {
		e.Type, e.Number = kind, len(out)
		out = append(out, marshal(e))
	}
	a.begin()
	a.res.Status, a.res.Usage = completed, &Usage{}
	a.emit("response.completed", event{Response: &a.res})
	return out
}

// Continue puts what was prepared in front of the members of a request that continues it. The
// request keeps its own settings.
func (p *Prepared) Continue(members map[string]jsontext.Value) error {
	before, err := itemsOf(p.members["input"])
	if err != nil {
		return err
	}
	after, err := itemsOf(members["input"])
	if err != nil {
		return err
	}
	members["input"] = encode(append(before, after...))
	delete(members, "previous_response_id")
	for _, name := range []string{"previous_response_id", "conversation", "metadata"} {
		if v, ok := p.members[name]; ok && len(members[name]) == 0 {
			members[name] = v
		}
	}
	return nil
}

// itemsOf returns an input as items. A string is what the user says.
func itemsOf(input jsontext.Value) ([]jsontext.Value, error) {
	if len(input) == 0 || input.Kind() == 'n' {
		return nil, nil
	}
	if input.Kind() == '"' {
		return []jsontext.Value{encode(map[string]any{"type": message, "role": "user", "content": input})}, nil
	}
	var list []jsontext.Value
	return list, decode("input", input, &list)
}
