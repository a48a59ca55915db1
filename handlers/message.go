package handlers

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
)

// messageAPI serves an agent's messages: its ledger, its history and its turns.
type messageAPI struct {
	bodies
	memory       *agents.Service
	now          func() time.Time
	historyBytes prometheus.Counter
}

func (a messageAPI) append(w http.ResponseWriter, r *http.Request) error {
	msgs, err := a.decodeAppend(w, r)
	if err != nil {
		return err
	}
	id := chi.URLParam(r, "id")
	done, err := a.memory.Messages.Append(r.Context(), projectOf(r), id, msgs)
	if err != nil {
		return err
	}
	return encode(w, http.StatusOK, newAppendAnswer(id, done))
}

// decodeAppend reads the messages of an append: a batch, a bare list or one message.
func (a messageAPI) decodeAppend(w http.ResponseWriter, r *http.Request) ([]memory.Message, error) {
	body, err := a.read(w, r)
	if err != nil {
		return nil, err
	}
	// A bare list follows the same rules.
	if bytes.HasPrefix(bytes.TrimLeft(body, " \t\r\n"), []byte("[")) {
		if err := parse(body, new(json.RawMessage), true); err != nil {
			return nil, err
		}
		body = slices.Concat([]byte(`{"messages":`), body, []byte(`}`))
	}
	var in appendRequest
	if err := parse(body, &in, true); err != nil {
		return nil, err
	}
	key, err := idempotencyKey(r, maxKey)
	if err != nil {
		return nil, err
	}
	return in.messages(key, a.now())
}

// Page sizes of the ledger. A page ends early once its messages take maxPageBytes.
const (
	defaultLedgerPage = 100
	maxLedgerPage     = 1000
	maxPageBytes      = 2 << 20
)

// firstPage returns the page of at most limit messages, out of one more that were asked for with
// maxPageBytes, and the Seq of its last message, or 0 if nothing follows.
func firstPage(msgs []memory.Message, limit int) (page []memory.Message, last int64) {
	size := int64(0)
	for i := range msgs {
		size += msgs[i].Bytes()
	}
	if len(msgs) <= limit && size < maxPageBytes {
		return msgs, 0
	}
	page = msgs[:min(len(msgs), limit)]
	return page, page[len(page)-1].Seq
}

func (a messageAPI) list(r *http.Request) (any, error) {
	query := r.URL.Query()
	limit, err := intParam(query, "limit", defaultLedgerPage, 1, maxLedgerPage)
	if err != nil {
		return nil, err
	}
	after, err := intParam(query, "after_seq", 0, 0, 1<<53)
	if err != nil {
		return nil, err
	}
	cursor, err := intParam(query, "cursor", 0, 0, 1<<53)
	if err != nil {
		return nil, err
	}
	id := chi.URLParam(r, "id")
	msgs, err := a.memory.Messages.Page(r.Context(), projectOf(r), id, memory.MessageQuery{AfterSeq: int64(max(after, cursor)), Limit: limit + 1, Bytes: maxPageBytes})
	if err != nil {
		return nil, err
	}
	next := ""
	msgs, last := firstPage(msgs, limit)
	if last > 0 {
		next = strconv.FormatInt(last, 10)
	}
	head, err := a.memory.Messages.Head(r.Context(), projectOf(r), id)
	if err != nil {
		return nil, err
	}
	entries := newLedgerEntries(msgs, !head.Agent.Status.Ended(), head.Agent.Settings.Memory.BaseSeq)
	return ledgerPage{AgentID: id, Messages: entries, NextCursor: next}, nil
}
