package handlers

import (
	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory/view"
)

// projectionWords are the texts around what was heard; see docs/guides/projections.md.
type projectionWords struct {
	Marker   string `json:"marker"`
	Unsaid   string `json:"unsaid"`
	Tool     string `json:"tool"`
	NoResult string `json:"no_result"`
	Nothing  string `json:"nothing"`
}

// transformProperties say what is added to the texts that the LLM gets.
type transformProperties struct {
	Timestamp *struct {
		Format    string `json:"format"`
		Zone      string `json:"zone" validate:"max=64"`
		Assistant bool   `json:"assistant"`
	} `json:"timestamp"`
	Speaker *struct {
		Format string            `json:"format"`
		Names  map[string]string `json:"names"`
	} `json:"speaker"`
	Original bool `json:"original"`
}

// view returns how the LLM sees the conversation, nil for the default.
func (j *joinProperties) view() *view.View {
	p := &j.Heardlog
	v := view.View{Projection: view.Projection(p.Projection), Words: view.Words(p.Words)}
	if t := p.Transform.Timestamp; t != nil {
		prefix := view.TimestampPrefix(*t)
		v.Timestamp = &prefix
	}
	if s := p.Transform.Speaker; s != nil {
		prefix := view.SpeakerPrefix(*s)
		v.Speaker = &prefix
	}
	if p.Transform.Original {
		v.Projection = view.GeneratedWhole
	}
	if v == (view.View{}) {
		return nil
	}
	return &v
}

// viewRules checks what tags cannot.
func (j *joinProperties) viewRules() error {
	p := &j.Heardlog
	if p.Transform.Original && p.Projection != "" && p.Projection != string(view.GeneratedWhole) {
		return fault.At(fault.Invalid, "properties.heardlog.transform.original",
			"gives the model the whole text, which projection %s forbids; set one of them", p.Projection)
	}
	v := j.view()
	if v == nil {
		return nil
	}
	if err := v.Words.Check("properties.heardlog.projection_words"); err != nil {
		return err
	}
	if err := v.Timestamp.Check("properties.heardlog.transform.timestamp"); err != nil {
		return err
	}
	return v.Speaker.Check("properties.heardlog.transform.speaker")
}
