package export

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"

	"github.com/heardlog/heardlog/internal/secret"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/webhook"
)

// Version is the version of the export format.
const Version = 1

// MaxLine is the longest line, in bytes.
const MaxLine = 64 << 20

// Header is the first line of an export.
type Header struct {
	Version      int   `json:"heardlog_export"`
	Scope        Scope `json:"scope"`
	Secrets      bool  `json:"secrets"`       // whether it holds secrets
	LastDelivery int64 `json:"last_delivery"` // the highest ID of a delivery
}

// Counts is the number of records of each kind.
type Counts struct {
	Keys          int64 `json:"keys"`
	Endpoints     int64 `json:"endpoints"`
	Agents        int64 `json:"agents"`
	Messages      int64 `json:"messages"`
	Items         int64 `json:"items"`
	Working       int64 `json:"working"`
	Conversations int64 `json:"conversations"`
	Records       int64 `json:"records"`
	Events        int64 `json:"events"`
	Deliveries    int64 `json:"deliveries"`
}

// End is the last line: the number of lines before it, what they hold, and the SHA-256 of all their
// bytes.
type End struct {
	Lines  int64  `json:"lines"`
	Counts Counts `json:"counts"`
	SHA256 string `json:"sha256"`
}

// Add counts a record.
func (c *Counts) Add(r Record) {
	switch {
	case r.Key != nil:
		c.Keys++
	case r.Endpoint != nil:
		c.Endpoints++
	case r.Agent != nil:
		c.Agents++
	case r.Message != nil:
		c.Messages++
	case r.Item != nil:
		c.Items++
	case r.Working != nil:
		c.Working++
	case r.Conversation != nil:
		c.Conversations++
	case r.Value != nil:
		c.Records++
	case r.Event != nil:
		c.Events++
	case r.Delivery != nil:
		c.Deliveries++
	}
}

// String returns the numbers in words.
func (c Counts) String() string {
	return fmt.Sprintf("%d agents with %d messages, %d conversations, %d records, %d endpoints, %d events with %d deliveries", c.Agents, c.Messages, c.Conversations, c.Records, c.Endpoints, c.Events, c.Deliveries)
}

// Write writes an export of the scope. Without secrets it leaves out agents' LLM keys, headers and
// properties and the server's own keys, and writes endpoints that have secrets as disabled.
// progress, if not nil, is called after each record.
func Write(ctx context.Context, w io.Writer, from Source, s Scope, secrets bool, progress func(Counts)) (End, error) {
	var n Counts
	return write(ctx, w, from, s, secrets, func(r Record, _ []byte) error {
		if progress != nil {
			n.Add(r)
			progress(n)
		}
		return nil
	})
}

// write is Write, but calls each for every record with its line, without the line's end.
func write(ctx context.Context, w io.Writer, from Source, s Scope, secrets bool, each func(Record, []byte) error) (End, error) {
	h := sha256.New()
	out := io.MultiWriter(w, h)
	end := End{}
	put := func(b []byte) error {
		if len(b) >= MaxLine {
			return fmt.Errorf("a record of %d bytes is longer than a line may be, %d bytes", len(b), MaxLine)
		}
		_, err := out.Write(append(b, '\n'))
		end.Lines++
		return err
	}
	err := from.Export(ctx, s, func(r Record) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		if r.Start != nil {
			b, err := plainJSON(Header{Version: Version, Scope: s, Secrets: secrets, LastDelivery: r.Start.LastDelivery})
			if err != nil {
				return err
			}
			return put(b)
		}
		if !secrets {
			if r.Key != nil {
				return nil
			}
			r = bare(r)
		}
		b, err := encode(r)
		if err != nil {
			return err
		}
		if err := put(b); err != nil {
			return fmt.Errorf("%s: %w", r.name(), err)
		}
		end.Counts.Add(r)
		return each(r, b)
	})
	if err != nil {
		return end, err
	}
	end.SHA256 = hex.EncodeToString(h.Sum(nil))
	b, err := plainJSON(line{End: &end})
	if err != nil {
		return end, err
	}
	_, err = w.Write(append(b, '\n'))
	return end, err
}

// withoutSecrets is the reason why an endpoint is disabled that was exported without its secrets.
// Enabled, it would send unsigned.
const withoutSecrets = "exported without its secrets"

// bare returns a record without secrets and leaves the original as it is.
func bare(r Record) Record {
	switch {
	case r.Agent != nil:
		a := *r.Agent
		llm := &a.Settings.LLM
		llm.APIKey, llm.Headers, a.Properties = "", nil, nil
		llm.URL, llm.Params = secret.StripLLMURL(llm.URL), secret.Strip(llm.Params)
		llm.Upstreams = append([]memory.Upstream(nil), llm.Upstreams...)
		for i := range llm.Upstreams {
			u := &llm.Upstreams[i]
			u.APIKey, u.Headers, u.URL = "", nil, secret.StripLLMURL(u.URL)
		}
		if llm.Realtime != nil {
			u := *llm.Realtime
			u.APIKey, u.Headers, u.URL = "", nil, secret.StripLLMURL(u.URL)
			llm.Realtime = &u
		}
		r.Agent = &a
	case r.Endpoint != nil:
		e := r.Endpoint.Clone()
		shown := secret.StripURL(e.URL)
		if len(e.Secrets) > 0 || len(e.Headers) > 0 || !e.Auth.Zero() || !e.ClientCert.Zero() || shown != e.URL {
			e.URL = shown
			e.Secrets, e.Headers, e.Auth, e.ClientCert = nil, nil, webhook.Auth{}, webhook.ClientCert{}
			if !e.Disabled {
				e.Disabled, e.DisabledWhy, e.DisabledMS = true, withoutSecrets, e.UpdatedMS
			}
		}
		r.Endpoint = &e
	}
	return r
}
