package webhook

import (
	"embed"
	"encoding/json"
	"fmt"
	"path"
	"slices"

	"github.com/heardlog/heardlog/internal/event"
)

// CatalogueEntry describes one event type to the authors of receivers.
type CatalogueEntry struct {
	Name        string          `json:"name"`   // what filters name it by
	Number      int             `json:"number"` // eventType of its bodies
	Description string          `json:"description"`
	Default     bool            `json:"default"` // sent to an endpoint without a filter
	Schema      json.RawMessage `json:"schema"`  // JSON Schema (2020-12) of the whole body
	Example     json.RawMessage `json:"example"` // a whole body
}

// schemas holds a JSON Schema for each event type, named after it, with its description and an
// example.
//
//go:embed schemas/*.json
var schemas embed.FS

// Catalogue returns every event type that Heardlog sends, ordered by number. It fails only if the
// program was built with a broken schema.
func Catalogue() ([]CatalogueEntry, error) {
	files, err := schemas.ReadDir("schemas")
	if err != nil {
		return nil, err
	}
	out := make([]CatalogueEntry, 0, len(files))
	for _, f := range files {
		b, err := schemas.ReadFile(path.Join("schemas", f.Name()))
		if err != nil {
			return nil, err
		}
		e, err := readSchema(b)
		if err != nil {
			return nil, fmt.Errorf("schema %s: %w", f.Name(), err)
		}
		out = append(out, e)
	}
	slices.SortFunc(out, func(a, b CatalogueEntry) int { return a.Number - b.Number })
	return out, nil
}

func readSchema(b []byte) (CatalogueEntry, error) {
	var s struct {
		Title       string `json:"title"`
		Description string `json:"description"`
		Properties  struct {
			EventType struct {
				Const int `json:"const"`
			} `json:"eventType"`
		} `json:"properties"`
		Examples []json.RawMessage `json:"examples"`
	}
	if err := json.Unmarshal(b, &s); err != nil {
		return CatalogueEntry{}, err
	}
	if s.Title == "" || s.Properties.EventType.Const == 0 || len(s.Examples) == 0 {
		return CatalogueEntry{}, fmt.Errorf("title, properties.eventType.const or examples is missing")
	}
	n := s.Properties.EventType.Const
	t, _ := event.Of(n)
	return CatalogueEntry{Name: s.Title, Number: n, Description: s.Description, Default: t.Default, Schema: b, Example: s.Examples[0]}, nil
}
