package vector

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/heardlog/heardlog/internal/text"
)

// ModelID returns the ID of the model that makes embeddings, or "" if there is none or it is not
// known yet.
func (s *Service) ModelID() string {
	if m := s.model.Load(); m != nil {
		return m.ID
	}
	return ""
}

// EmbedTexts returns the embeddings of texts as the documents of collections get them; see
// recall.Embedder. If it fails, it asks the endpoint whether it has another model now.
func (s *Service) EmbedTexts(ctx context.Context, texts []string) (list [][]float32, model string, err error) {
	if list, model, err = s.embedTexts(ctx, texts); err != nil {
		err = errors.Join(err, s.identify(ctx))
	}
	return list, model, err
}

// embedTexts returns the embeddings of at most 64 texts, of which the first 8,000 bytes count, and
// the ID of the model that made them. An embedding is nil if the model refuses the text. It fails
// as the Embedder does, with the embeddings of the texts before, or if the endpoint has changed its
// model.
func (s *Service) embedTexts(ctx context.Context, texts []string) (list [][]float32, model string, err error) {
	m := s.model.Load()
	if m == nil {
		return nil, "", fmt.Errorf("the model of the embeddings is not known yet")
	}
	clipped := make([]string, len(texts))
	for i, t := range texts {
		clipped[i] = text.Clip(t, embedBytes)
	}
	list, err = s.embed(ctx, clipped)
	if refused(err) { // one by one
		list, err = nil, nil
		for i := 0; i < len(clipped) && err == nil; i++ {
			var v []float32
			if v, err = s.embedOne(ctx, clipped[i]); err == nil {
				list = append(list, v)
			}
		}
	}
	for _, v := range list {
		if err := s.checkMade(m.ID, v); err != nil {
			return nil, "", err
		}
	}
	return list, m.ID, err
}

// checkMade returns an error unless an embedding, nil for none, is one of the given model and that
// is the current one.
func (s *Service) checkMade(model string, v []float32) error {
	if err := checkVector("embedding", v); err != nil {
		return err
	}
	if current := s.model.Load(); current == nil || current.ID != model || v != nil && len(v) != current.Dimensions {
		s.model.Store(nil) // the endpoint has another model now
		return fmt.Errorf("the embeddings have %d numbers or another probe, which is not what the model had", len(v))
	}
	return nil
}

// EmbedQuery returns the embedding of the text of a query and the ID of its model. It returns nil
// if there is no model, or if the embedding takes longer than within or fails.
func (s *Service) EmbedQuery(ctx context.Context, query string, within time.Duration) (vector []float32, model string) {
	q := s.embedQuery(ctx, query, within)
	return q.vector, q.model
}
