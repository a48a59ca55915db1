package turn

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/heardlog/heardlog/internal/peek"
	"github.com/heardlog/heardlog/internal/secret"
	"github.com/heardlog/heardlog/llmadapter"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/redact"
	"github.com/heardlog/heardlog/memory/requests"
)

// recordRequest makes the record of what the model is given, while the upstream works on it. Lists
// of an agent that was paused repeat what was said in the pause, so these are not recorded.
func (q *asker) recordRequest(call *llmadapter.Call) {
	if q.aside || q.turn.Agent.Settings.PausedUntilMS != 0 {
		return
	}
	t, seqs := q.prompt.Request()
	turn, hides, agent := *q.turn, q.hide != nil, q.turn.Agent
	ledger := turn.Ledger()
	ctx, done := q.ctx, make(chan *memory.Request, 1)
	q.answer.relay.Mu.Lock()
	q.answer.request = done
	q.answer.relay.Mu.Unlock()
	go func() { // settle waits for it
		body, shown := call.Body, ledger
		if hides {
			within, stop := context.WithTimeout(context.WithoutCancel(ctx), beginTimeout)
			defer stop()
			err := q.cfg.Redact(within, &agent, func(r *redact.Redactor) {
				turn.Known(r)
				body, shown = hidden(r, call.Body, memory.Lines(slices.Values(ledger))), make([]*memory.Message, len(ledger))
				for i, m := range ledger {
					redacted := m.Redacted(r)
					shown[i] = &redacted
				}
			})
			if err != nil {
				done <- nil // the record would have names in it
				return
			}
		}
		t.URL, _, _ = strings.Cut(secret.MaskURL(call.URL), "?")
		secrets := sync.OnceValue(call.Secrets)
		requests.Record(t, body, shown, seqs, func(b []byte) []byte { return secrets().Remove(b) })
		done <- t
	}()
}

// tried notes how an attempt ended, nil for one that was answered.
func (q *asker) tried(sentMS int64, upstream string, err error) {
	t := memory.Try{Upstream: upstream, SentMS: sentMS}
	if err != nil {
		t.Error = failureOf(err).Message
	}
	q.answer.relay.Mu.Lock()
	defer q.answer.relay.Mu.Unlock()
	q.answer.tries = append(q.answer.tries, t)
}

// record returns what the model was given, or nil. The caller does not hold relay.Mu.
func (a *answer) record() *memory.Request {
	a.relay.Mu.Lock()
	done, tries := a.request, slices.Clone(a.tries)
	a.request = nil
	a.relay.Mu.Unlock()
	if done == nil {
		return nil
	}
	t := <-done
	if t == nil {
		return nil
	}
	t.Tries = tries
	return t
}

// hidden returns the body of a request without personal data. stored is what the ledger has of it.
func hidden(hide *redact.Redactor, body []byte, stored []redact.Line) []byte {
	if hide == nil {
		return body
	}
	list := peek.At(body, "messages")
	if pieces := spread(hide, list, stored); pieces != nil {
		out := make([][]byte, len(pieces))
		for i, m := range list.List() {
			out[i] = hide.Knowing(pieces[i]).Message(m)
		}
		body = peek.Replace(body, list, "["+string(bytes.Join(out, []byte(",")))+"]")
	}
	return hide.Request(body)
}

// redacted returns what an upstream said of a request with this body without personal data.
func redacted(hide *redact.Redactor, said, body []byte, stored []redact.Line) []byte {
	pieces := slices.Concat(spread(hide, peek.At(body, "messages"), stored)...)
	return hide.Knowing(pieces).JSON(said)
}

// spread returns what is replaced in each message of a request because other messages have the rest
// of a number.
func spread(hide *redact.Redactor, list peek.Value, stored []redact.Line) [][]redact.Piece {
	var lines []redact.Line
	for _, m := range list.List() {
		lines = append(lines, redact.Line{Speaker: m.At("role").Str(), Text: llmadapter.ContentText(m.At("content"))})
	}
	return hide.SpreadFrom(stored, lines)
}
