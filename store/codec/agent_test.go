package codec_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/view"
	"github.com/heardlog/heardlog/store/codec"
)

// TestView: a view and scores come back as they were stored, and settings without a view have none.
func TestView(t *testing.T) {
	t.Parallel()
	in := memory.Settings{LLM: memory.LLMSettings{View: &view.View{
		Projection: view.HeardMarked, Words: view.Words{Marker: "…"},
		Timestamp: &view.TimestampPrefix{Zone: "Europe/Berlin", Assistant: true},
		Speaker:   &view.SpeakerPrefix{Names: map[string]string{"42": "Anna"}},
	}}}
	in.Scores = []memory.Score{{ID: "s", Name: "tone", Value: []byte(`"warm"`), Turn: new(int64(0)), Comment: "c", Author: "a", Source: "human", UpdatedMS: 5}}
	b, err := codec.EncodeSettings(in)
	if err != nil {
		t.Fatal(err)
	}
	out, err := codec.DecodeSettings(b)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(in, out); diff != "" {
		t.Error(diff)
	}
	plain, err := codec.DecodeSettings([]byte(`{"llm":{"MaxHistory":32}}`))
	if err != nil || plain.LLM.View != nil {
		t.Errorf("%+v, %v", plain.LLM.View, err)
	}
	m := memory.Message{Role: memory.Assistant, Source: memory.SourceLLM, Content: "a", Generated: "a b", Interrupted: true}
	if got := m.TextFor(plain.LLM.View, m.Content); got != "a" {
		t.Errorf("%q", got)
	}
}
