package vector

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"math"
	"time"

	"github.com/heardlog/heardlog/store/record"
)

// Embedder makes embeddings of texts with one model. A nil Embedder in a Config means that there is
// none.
type Embedder interface {
	// Embed returns the embeddings of at most embedTexts texts, in their order and of the same
	// length. An error with a method Refused that returns true says that the model may not take
	// one of the texts.
	Embed(ctx context.Context, texts []string) ([][]float32, error)
}

// Model is a model that has made embeddings. Two models are the same if they have the same
// endpoint and name, and make the same embedding of a probe text. So a model that was changed
// silently is another one.
type Model struct {
	ID         string    `json:"-"`
	Endpoint   string    `json:"endpoint"` // hash of the endpoint's URL
	Name       string    `json:"name"`
	Dimensions int       `json:"dimensions"`
	Probe      []float32 `json:"probe"`
	SinceMS    int64     `json:"since_ms"`
	Current    bool      `json:"-"`
}

const (
	probeText = "The quick brown fox jumps over the lazy dog."
	// probeError is how much numbers of a probe's embedding may differ; see near.
	probeError = 0.01
)

// modelSpace is the space of the server's models. They belong to no project.
func modelSpace() record.Space { return record.Space{Name: "embedding.models"} }

// near reports whether two embeddings differ by no more than one model's own do.
func near(a, b []float32) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if math.Abs(float64(a[i])-float64(b[i])) > probeError {
			return false
		}
	}
	return true
}

// Models returns the models that have been used, the newest 1,000 at most.
func (s *Service) Models(ctx context.Context) ([]Model, error) {
	list, _, err := s.cfg.Store.Records(ctx, modelSpace(), record.Query{Limit: 1000})
	if err != nil {
		return nil, err
	}
	current := s.model.Load()
	out := make([]Model, len(list))
	for i, r := range list {
		if err := json.Unmarshal(r.Body, &out[i]); err != nil {
			return nil, err
		}
		out[i].ID, out[i].Current = r.ID, current != nil && current.ID == r.ID
	}
	return out, nil
}

// identify finds out which model the endpoint serves.
func (s *Service) identify(ctx context.Context) error {
	within, stop := context.WithTimeout(ctx, embedTimeout)
	defer stop()
	probes, err := s.cfg.Embedder.Embed(within, []string{probeText})
	if err != nil {
		return err
	}
	probe := probes[0]
	if err := checkVector("the probe's embedding", probe); err != nil {
		return err
	}
	models, err := s.Models(ctx)
	if err != nil {
		return err
	}
	endpoint := sha256.Sum256([]byte(s.cfg.Endpoint))
	found := Model{Endpoint: hex.EncodeToString(endpoint[:8]), Name: s.cfg.ModelName, Dimensions: len(probe), Probe: probe, SinceMS: s.nowMS()}
	for _, m := range models {
		if m.Endpoint == found.Endpoint && m.Name == found.Name && near(m.Probe, probe) {
			s.model.Store(&m)
			return nil
		}
	}
	body, err := json.Marshal(found)
	if err != nil {
		return err
	}
	id := sha256.Sum256(body)
	found.ID = hex.EncodeToString(id[:6])
	if _, err := s.cfg.Store.ChangeRecords(ctx, modelSpace(), []record.Change{{ID: found.ID, Body: body, If: record.Any}}, record.Limit{}, nil, s.nowMS()); err != nil {
		return err
	}
	s.model.Store(&found)
	return nil
}

// The embedding of a query.
type queried struct {
	vector []float32
	model  string
}

// embedQuery returns the embedding of a text, or none if it takes too long or fails.
func (s *Service) embedQuery(ctx context.Context, text string, within time.Duration) queried {
	m := s.model.Load()
	if m == nil {
		return queried{}
	}
	ctx, stop := context.WithTimeout(ctx, within)
	defer stop()
	list, err := s.cfg.Embedder.Embed(ctx, []string{text})
	if err != nil || len(list[0]) != m.Dimensions || checkVector("", list[0]) != nil {
		return queried{}
	}
	return queried{list[0], m.ID}
}
