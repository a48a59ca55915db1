package llmadapter

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
)

// MaxTexts is how many texts one call of an Embedder may have.
const MaxTexts = 64

// maxEmbeddings is how long an answer may be, in bytes: that of MaxTexts embeddings of 4,096
// numbers.
const maxEmbeddings = 16 << 20

// Embedder asks an OpenAI-compatible endpoint for the embeddings of texts by one model. Its methods
// are safe for concurrent use.
type Embedder struct {
	URL        string // of the endpoint, such as https://api.openai.com/v1/embeddings
	Key        string // sent as a bearer token; "" = none
	Model      string // "" leaves it to the endpoint
	Dimensions int    // asked of the endpoint; 0 = its default
	Transport  http.RoundTripper
}

// embedderStatus is an answer other than 200.
type embedderStatus int

func (e embedderStatus) Error() string {
	return fmt.Sprintf("the endpoint of the embeddings answered %d", int(e))
}

// Refused reports whether the texts may be the reason: not a key, a limit or the time.
func (e embedderStatus) Refused() bool {
	switch e {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusRequestTimeout, http.StatusTooManyRequests:
		return false
	}
	return e >= 400 && e < 500
}

// Embed returns the embeddings of texts, at most MaxTexts, in their order. Errors hold neither the
// key nor the texts.
func (c *Embedder) Embed(ctx context.Context, texts []string) ([][]float32, error) {
	in := map[string]any{"input": texts, "encoding_format": "float"}
	if c.Model != "" {
		in["model"] = c.Model
	}
	if c.Dimensions > 0 {
		in["dimensions"] = c.Dimensions
	}
	body, err := json.Marshal(in)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL, bytes.NewReader(body))
	if err != nil {
		return nil, errors.New("the URL of the embeddings cannot be called")
	}
	req.Header.Set("Content-Type", "application/json")
	if c.Key != "" {
		req.Header.Set("Authorization", "Bearer "+c.Key)
	}
	client := http.Client{Transport: c.Transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	res, err := client.Do(req)
	if err != nil {
		if e, ok := errors.AsType[*url.Error](err); ok { // its text quotes the URL
			err = e.Err
		}
		return nil, fmt.Errorf("call the embeddings: %w", err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return nil, embedderStatus(res.StatusCode)
	}
	answer, err := io.ReadAll(io.LimitReader(res.Body, maxEmbeddings))
	if err != nil {
		return nil, fmt.Errorf("read the embeddings: %w", err)
	}
	var out struct {
		Data []struct {
			Index     int       `json:"index"`
			Embedding []float32 `json:"embedding"`
		} `json:"data"`
	}
	if err := json.Unmarshal(answer, &out); err != nil {
		return nil, errors.New("the answer of the embeddings' endpoint is not as OpenAI's")
	}
	list := make([][]float32, len(texts))
	for _, d := range out.Data {
		if d.Index >= 0 && d.Index < len(list) {
			list[d.Index] = d.Embedding
		}
	}
	for i := range list {
		if len(list[i]) == 0 || len(list[i]) != len(list[0]) {
			return nil, fmt.Errorf("the endpoint of the embeddings answered %d embeddings to %d texts, or some of another length", len(out.Data), len(texts))
		}
	}
	return list, nil
}
