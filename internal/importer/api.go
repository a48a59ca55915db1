package importer

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/heardlog/heardlog/internal/peek"
)

// api is the API of a platform.
type api struct {
	client
	key string
}

// lister reads the calls of a platform that began from one time to another, in order, and passes
// them. to is the server that receives them.
type lister struct {
	url  string
	auth func(key string) func(*http.Request)
	list func(ctx context.Context, a *api, to *client, since, until time.Time, each func(source) error) error
}

var apis = map[string]lister{
	"vapi":   {"https://api.vapi.ai", bearer, listVapi},
	"retell": {"https://api.retellai.com", bearer, listRetell},
	"elevenlabs": {"https://api.elevenlabs.io", func(key string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("xi-api-key", key) }
	}, listElevenLabs},
	"twilio": {"https://intelligence.twilio.com", func(key string) func(*http.Request) {
		return func(r *http.Request) {
			r.Header.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(key)))
		}
	}, listTwilio},
}

const (
	pageSize = 100
	// window is what of Vapi's calls is read at once, since the list has the newest first.
	window = 24 * time.Hour
)

// given returns a source for what was read already.
func given(body []byte) source { return func() ([]byte, error) { return body, nil } }

// listVapi reads a day at a time.
func listVapi(ctx context.Context, a *api, _ *client, since, until time.Time, each func(source) error) error {
	for from := since; from.Before(until); from = from.Add(window) {
		end := from.Add(window)
		if end.After(until) {
			end = until
		}
		var all []json.RawMessage
		seen := map[string]bool{}
		for before := end.UTC(); ; {
			var page []json.RawMessage
			q := url.Values{"limit": {strconv.Itoa(pageSize)}, "createdAtGe": {from.UTC().Format(time.RFC3339Nano)}, "createdAtLt": {before.Format(time.RFC3339Nano)}}
			if err := a.call(ctx, http.MethodGet, "/call?"+q.Encode(), nil, &page); err != nil {
				return err
			}
			known := len(all)
			for _, call := range page {
				if id := peek.At(call, "id").Str(); !seen[id] {
					seen[id] = true
					all = append(all, call)
				}
			}
			if len(page) < pageSize {
				break
			}
			// Others may have begun in the millisecond of the oldest, so that it is read again.
			oldest, err := time.Parse(time.RFC3339, peek.At(page[len(page)-1], "createdAt").Str())
			if len(all) > known {
				oldest = oldest.Add(time.Millisecond)
			}
			if err != nil || !oldest.Before(before) && len(all) == known {
				return fmt.Errorf("the list of %s does not go on before %s", a.base, before)
			}
			before = oldest
		}
		for _, call := range slices.Backward(all) {
			if err := each(given(call)); err != nil {
				return err
			}
		}
	}
	return nil
}

// listRetell reads the list and each call, because the list has no transcripts.
func listRetell(ctx context.Context, a *api, to *client, since, until time.Time, each func(source) error) error {
	after := ""
	for {
		body := map[string]any{
			"limit": pageSize, "sort_order": "ascending",
			"filter_criteria": map[string]any{"start_timestamp": map[string]any{"type": "range", "op": "bt", "value": []int64{since.UnixMilli(), until.UnixMilli()}}},
		}
		if after != "" {
			body["pagination_key"] = after
		}
		raw, err := json.Marshal(body)
		if err != nil {
			return err
		}
		var page struct {
			Items   []json.RawMessage `json:"items"`
			HasMore bool              `json:"has_more"`
			Next    string            `json:"pagination_key"`
		}
		if err := a.call(ctx, http.MethodPost, "/v3/list-calls", raw, &page); err != nil {
			return err
		}
		for _, item := range page.Items {
			if id := peek.At(item, "call_id").Str(); id != "" && !to.knows(ctx, id) {
				if err := each(a.fetch(ctx, "/v2/get-call/"+url.PathEscape(id))); err != nil {
					return err
				}
			}
		}
		if !page.HasMore || page.Next == "" || page.Next == after {
			return nil
		}
		after = page.Next
	}
}

// fetch returns a source that reads a call from the API.
func (a *api) fetch(ctx context.Context, path string) source {
	return func() ([]byte, error) {
		var raw json.RawMessage
		err := a.call(ctx, http.MethodGet, path, nil, &raw)
		return raw, err
	}
}

// knows reports whether the server has the words of a call, so that it need not be read again.
func (c *client) knows(ctx context.Context, id string) bool {
	var agent struct {
		Hosted   *struct{} `json:"hosted"`
		Messages int       `json:"messages"`
	}
	err := c.call(ctx, http.MethodGet, "/v1/agents/"+url.PathEscape(id), nil, &agent)
	return err == nil && agent.Hosted != nil && agent.Messages > 0
}

// listElevenLabs reads the whole list, which has the newest first, and then each conversation.
func listElevenLabs(ctx context.Context, a *api, to *client, since, until time.Time, each func(source) error) error {
	type conversation struct {
		ID    string `json:"conversation_id"`
		Start int64  `json:"start_time_unix_secs"`
	}
	var all []conversation
	cursor := ""
	for {
		q := url.Values{"page_size": {strconv.Itoa(pageSize)}, "call_start_after_unix": {strconv.FormatInt(since.Unix(), 10)}, "call_start_before_unix": {strconv.FormatInt(until.Unix(), 10)}}
		if cursor != "" {
			q.Set("cursor", cursor)
		}
		var page struct {
			Conversations []conversation `json:"conversations"`
			HasMore       bool           `json:"has_more"`
			Next          string         `json:"next_cursor"`
		}
		if err := a.call(ctx, http.MethodGet, "/v1/convai/conversations?"+q.Encode(), nil, &page); err != nil {
			return err
		}
		all = append(all, page.Conversations...)
		if !page.HasMore || page.Next == "" || page.Next == cursor {
			break
		}
		cursor = page.Next
	}
	slices.SortStableFunc(all, func(x, y conversation) int { return cmp.Compare(x.Start, y.Start) })
	for _, c := range all {
		if to.knows(ctx, c.ID) {
			continue
		}
		if err := each(a.fetch(ctx, "/v1/convai/conversations/"+url.PathEscape(c.ID))); err != nil {
			return err
		}
	}
	return nil
}

// listTwilio reads the transcripts of Conversational Intelligence, each with its sentences and its
// call.
func listTwilio(ctx context.Context, a *api, to *client, since, until time.Time, each func(source) error) error {
	account, _, _ := strings.Cut(a.key, ":")
	calls := strings.Replace(a.base, "//intelligence.", "//api.", 1)
	path := "/v2/Transcripts?" + url.Values{"PageSize": {strconv.Itoa(pageSize)}, "AfterDateCreated": {since.UTC().Format(time.RFC3339)}, "BeforeDateCreated": {until.UTC().Format(time.RFC3339)}}.Encode()
	var all []json.RawMessage
	for path != "" {
		var page struct {
			Transcripts []json.RawMessage `json:"transcripts"`
			Meta        twilioMeta        `json:"meta"`
		}
		if err := a.call(ctx, http.MethodGet, path, nil, &page); err != nil {
			return err
		}
		all = append(all, page.Transcripts...)
		path = page.Meta.next()
	}
	slices.SortStableFunc(all, func(x, y json.RawMessage) int {
		return cmp.Compare(peek.At(x, "media_start_time").Str(), peek.At(y, "media_start_time").Str())
	})
	for _, t := range all {
		id := peek.Parse(t).Path("channel.media_properties.reference_sids.call_sid").Str()
		if peek.At(t, "status").Str() != "completed" || id != "" && to.knows(ctx, id) {
			continue
		}
		err := each(func() ([]byte, error) {
			sentences, err := a.sentences(ctx, peek.At(t, "sid").Str())
			if err != nil {
				return nil, err
			}
			out := map[string]any{"transcript": t, "sentences": sentences}
			if id != "" {
				var call json.RawMessage
				c := a.client
				c.base = calls
				if err := c.call(ctx, http.MethodGet, "/2010-04-01/Accounts/"+url.PathEscape(account)+"/Calls/"+url.PathEscape(id)+".json", nil, &call); err != nil {
					return nil, err
				}
				out["call"] = call
			}
			return json.Marshal(out)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// twilioMeta is where a list of Twilio's goes on.
type twilioMeta struct {
	Next string `json:"next_page_url"`
}

// next returns the path of the next page, "" for none. The host stays the same.
func (m twilioMeta) next() string {
	u, err := url.Parse(m.Next)
	if err != nil || m.Next == "" {
		return ""
	}
	return u.RequestURI()
}

func (a *api) sentences(ctx context.Context, transcript string) (out []json.RawMessage, err error) {
	for path := "/v2/Transcripts/" + url.PathEscape(transcript) + "/Sentences?PageSize=1000"; path != ""; {
		var page struct {
			Sentences []json.RawMessage `json:"sentences"`
			Meta      twilioMeta        `json:"meta"`
		}
		if err := a.call(ctx, http.MethodGet, path, nil, &page); err != nil {
			return nil, err
		}
		out = append(out, page.Sentences...)
		path = page.Meta.next()
	}
	return out, nil
}
