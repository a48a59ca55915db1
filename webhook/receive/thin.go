package receive

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
)

// Thin is the payload of an event whose body has to be fetched.
type Thin struct {
	IsThin   bool   `json:"thin"`
	FetchURL string `json:"fetch_url"` // signed, for this endpoint only
	// Unix ms after which the URL is no longer served; a replay brings a fresh one
	ExpiresMS int64  `json:"expires_at"`
	Bytes     int64  `json:"bytes"`
	SHA256    string `json:"sha256"` // hex, of the whole body
	AgentID   string `json:"agent_id"`
	Sequence  int64  `json:"sequence"`
}

// Fetch fetches the whole body, which Decode reads. It fails unless length and SHA-256 match those
// in the signed event. It does not fetch a body of more than limit bytes.
func (t Thin) Fetch(ctx context.Context, c *http.Client, limit int64) ([]byte, error) {
	if t.Bytes < 0 || t.Bytes > limit {
		return nil, fmt.Errorf("fetch the event: it has %d bytes, and %d are allowed", t.Bytes, limit)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, t.FetchURL, nil)
	if err != nil {
		return nil, fmt.Errorf("fetch the event: %w", err)
	}
	res, err := c.Do(req)
	if err != nil {
		return nil, fmt.Errorf("fetch the event: %w", err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("fetch the event: status %d", res.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, t.Bytes+1))
	if err != nil {
		return nil, fmt.Errorf("fetch the event: %w", err)
	}
	sum := sha256.Sum256(body)
	if int64(len(body)) != t.Bytes || subtle.ConstantTimeCompare([]byte(hex.EncodeToString(sum[:])), []byte(t.SHA256)) != 1 {
		return nil, fmt.Errorf("fetch the event: the %d bytes that came are not the event's", len(body))
	}
	return body, nil
}
