package importer_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/heardlog/heardlog/internal/importer"
)

// desk is a server that keeps what it receives, and one platform's API.
type desk struct {
	mu    sync.Mutex
	calls []string          // IDs in the order in which they came
	facts map[string]string // bodies by path
	fail  int               // requests that fail first
	*httptest.Server
}

func newDesk(t *testing.T, api http.HandlerFunc) *desk {
	d := &desk{facts: map[string]string{}}
	d.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch path := r.URL.Path; {
		case strings.HasPrefix(path, "/v1/ingest/"):
			d.ingest(w, body)
		case strings.HasPrefix(path, "/v1/users/"):
			d.fact(w, r, body)
		case strings.HasPrefix(path, "/v1/agents/"):
			d.mu.Lock()
			known := slices.Contains(d.calls, strings.TrimPrefix(path, "/v1/agents/"))
			d.mu.Unlock()
			if !known {
				w.WriteHeader(http.StatusNotFound)
				return
			}
			fmt.Fprint(w, `{"hosted":{},"messages":2}`)
		default:
			r.Body = io.NopCloser(bytes.NewReader(body))
			api(w, r)
		}
	}))
	t.Cleanup(d.Close)
	return d
}

func (d *desk) ingest(w http.ResponseWriter, body []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fail > 0 {
		d.fail--
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	var in struct {
		ID     string `json:"id"`
		CallID string `json:"call_id"`
		Conv   string `json:"conversation_id"`
		Call   struct {
			SID string `json:"sid"`
		} `json:"call"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	id := in.ID + in.CallID + in.Conv + in.Call.SID
	status := "known"
	if !slices.Contains(d.calls, id) {
		d.calls, status = append(d.calls, id), "filed"
	}
	fmt.Fprintf(w, `{"status":%q}`, status)
}

func (d *desk) fact(w http.ResponseWriter, r *http.Request, body []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if r.Method == http.MethodGet {
		if stored := d.facts[r.URL.EscapedPath()]; stored != "" {
			fmt.Fprint(w, stored)
			return
		}
		w.WriteHeader(http.StatusNotFound)
		return
	}
	var f struct{ ID string }
	_ = json.Unmarshal(body, &f)
	d.facts[r.URL.EscapedPath()+"/"+f.ID] = string(body)
	w.WriteHeader(http.StatusCreated)
}

func env(log *bytes.Buffer) importer.Env {
	return importer.Env{
		Getenv: func(name string) string { return map[string]string{"KEY": "AC1:secret"}[name] },
		Stderr: log, HTTP: http.DefaultClient, Now: func() time.Time { return time.Date(2026, 11, 28, 0, 0, 0, 0, time.UTC) },
	}
}

// TestFile reads lists, pages, lines and folders, in order of time, and nothing twice.
func TestFile(t *testing.T) {
	t.Parallel()
	one := func(id string, day int) string {
		return fmt.Sprintf(`{"id":%q,"startedAt":"2026-11-%02dT00:00:00Z","messages":[{"role":"user","message":"Hi"}]}`, id, day)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"list.json": " [" + one("e", 5) + ",\n" + one("a", 1) + "]", "page.json": `{"results":[` + one("d", 4) + `, ` + one("b", 2) + `],"metadata":{}}`,
		"lines.jsonl": one("c", 3) + "\n" + one("f", 6) + "\n", "other.txt": "no JSON", "empty.json": "",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	d := newDesk(t, http.NotFound)
	d.fail = 1
	for _, want := range []string{"6 filed in", "0 filed, 6 known in"} {
		var log bytes.Buffer
		c := importer.Calls{ServerFlags: importer.ServerFlags{Server: d.URL}, File: dir, Platforms: []string{"vapi"}}
		if err := c.Import(t.Context(), env(&log)); err != nil || !strings.Contains(log.String(), want) {
			t.Errorf("%v\n%s", err, log.String())
		}
	}
	got := slices.Sorted(slices.Values(d.calls))
	if fmt.Sprint(got) != "[a b c d e f]" {
		t.Errorf("%v", d.calls)
	}
	var log bytes.Buffer
	c := importer.Calls{ServerFlags: importer.ServerFlags{Server: "http://127.0.0.1:1"}, File: filepath.Join(dir, "list.json"), Platforms: []string{"vapi"}, DryRun: true, Since: "2026-11-03"}
	if err := c.Import(t.Context(), env(&log)); err != nil || !strings.Contains(log.String(), "1 read in") {
		t.Errorf("dry: %v\n%s", err, log.String())
	}
}

// TestRefuses names what is wrong with the flags.
func TestRefuses(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]importer.Calls{
		"name one platform":         {File: "x"},
		"either --file or":          {Platforms: []string{"vapi"}},
		"no API that lists calls":   {Platforms: []string{"pipecat"}, APIKeyEnv: "KEY"},
		"variable NONE is empty":    {Platforms: []string{"vapi"}, APIKeyEnv: "NONE"},
		"--since: is needed":        {Platforms: []string{"vapi"}, APIKeyEnv: "KEY"},
		`"soon" is not a time`:      {Platforms: []string{"vapi"}, APIKeyEnv: "KEY", Since: "soon"},
		"must be at least 1m":       {Platforms: []string{"vapi"}, APIKeyEnv: "KEY", Since: "1d", Every: time.Second},
		"a file is read once":       {Platforms: []string{"vapi"}, File: "x", Every: time.Hour},
		"no such file or directory": {Platforms: []string{"vapi"}, File: "/nowhere"},
	} {
		if err := c.Import(t.Context(), env(&bytes.Buffer{})); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestAPIs reads the lists of the platforms, page by page, and files the calls in order of time.
func TestAPIs(t *testing.T) {
	t.Parallel()
	const said = `"messages":[{"role":"user","message":"Hi"}]`
	for name, c := range map[string]struct {
		since string
		api   http.HandlerFunc
		want  string
	}{
		"vapi": {"2d", vapiAPI(said), "v0"}, "retell": {"2d", retellAPI, "r0"}, "elevenlabs": {"2d", elevenLabsAPI, "c0"}, "twilio": {"2d", twilioAPI, "CA0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t, c.api)
			for range 2 {
				var log bytes.Buffer
				i := importer.Calls{ServerFlags: importer.ServerFlags{Server: d.URL}, APIKeyEnv: "KEY", APIURL: d.URL, Since: c.since, Platforms: []string{name}}
				if err := i.Import(t.Context(), env(&log)); err != nil {
					t.Fatalf("%v\n%s", err, log.String())
				}
			}
			if len(d.calls) == 0 || !slices.Contains(d.calls, c.want) {
				t.Fatalf("%v", d.calls)
			}
			if name == "vapi" && len(d.calls) != 150 {
				t.Errorf("%d calls", len(d.calls))
			}
			if name != "vapi" && len(d.calls) != 3 {
				t.Errorf("%d calls: %v", len(d.calls), d.calls)
			}
		})
	}
}

// vapiAPI has 150 calls, the newest first, of which some began in the same millisecond.
func vapiAPI(said string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/call" || r.Header.Get("Authorization") != "Bearer AC1:secret" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		from, _ := time.Parse(time.RFC3339, r.URL.Query().Get("createdAtGe"))
		before, _ := time.Parse(time.RFC3339, r.URL.Query().Get("createdAtLt"))
		list := []string{}
		for i := 149; i >= 0 && len(list) < 100; i-- {
			at := time.Date(2026, 11, 27, 1, 0, 0, 0, time.UTC).Add(time.Duration(i/4) * time.Minute)
			if !at.Before(from) && at.Before(before) {
				list = append(list, fmt.Sprintf(`{"id":"v%d","createdAt":%q,%s}`, i, at.Format(time.RFC3339), said))
			}
		}
		fmt.Fprintf(w, "[%s]", strings.Join(list, ","))
	}
}

func retellAPI(w http.ResponseWriter, r *http.Request) {
	if id, ok := strings.CutPrefix(r.URL.Path, "/v2/get-call/"); ok {
		fmt.Fprintf(w, `{"call_id":%q,"call_status":"ended"}`, id)
		return
	}
	var in struct {
		Key  string `json:"pagination_key"`
		Sort string `json:"sort_order"`
	}
	_ = json.NewDecoder(r.Body).Decode(&in)
	switch {
	case r.URL.Path != "/v3/list-calls" || in.Sort != "ascending":
		w.WriteHeader(http.StatusBadRequest)
	case in.Key == "":
		fmt.Fprint(w, `{"items":[{"call_id":"r0"},{"call_id":"r1"}],"has_more":true,"pagination_key":"k"}`)
	default:
		fmt.Fprint(w, `{"items":[{"call_id":"r2"}],"has_more":false}`)
	}
}

func elevenLabsAPI(w http.ResponseWriter, r *http.Request) {
	if id, ok := strings.CutPrefix(r.URL.Path, "/v1/convai/conversations/"); ok {
		fmt.Fprintf(w, `{"conversation_id":%q,"status":"done"}`, id)
		return
	}
	switch {
	case r.Header.Get("xi-api-key") != "AC1:secret":
		w.WriteHeader(http.StatusUnauthorized)
	case r.URL.Query().Get("cursor") == "":
		fmt.Fprint(w, `{"conversations":[{"conversation_id":"c2","start_time_unix_secs":3},{"conversation_id":"c1","start_time_unix_secs":2}],"has_more":true,"next_cursor":"k"}`)
	default:
		fmt.Fprint(w, `{"conversations":[{"conversation_id":"c0","start_time_unix_secs":1}],"has_more":false}`)
	}
}

func twilioAPI(w http.ResponseWriter, r *http.Request) {
	transcript := func(n int) string {
		return fmt.Sprintf(`{"sid":"GT%d","status":"completed","media_start_time":"2026-11-27T00:0%d:00Z","channel":{"media_properties":{"reference_sids":{"call_sid":"CA%d"}}}}`, n, n, n)
	}
	switch path := r.URL.Path; {
	case strings.HasSuffix(path, "/Sentences"):
		fmt.Fprint(w, `{"sentences":[{"media_channel":2,"sentence_index":0,"transcript":"Hi"}],"meta":{"next_page_url":null}}`)
	case strings.HasPrefix(path, "/2010-04-01/Accounts/AC1/Calls/"):
		fmt.Fprintf(w, `{"sid":%q,"status":"completed"}`, strings.TrimSuffix(filepath.Base(path), ".json"))
	case path != "/v2/Transcripts":
		w.WriteHeader(http.StatusBadRequest)
	case r.URL.Query().Get("Page") == "":
		fmt.Fprintf(w, `{"transcripts":[%s,%s],"meta":{"next_page_url":"https://intelligence.twilio.com/v2/Transcripts?Page=1"}}`, transcript(2), transcript(1))
	default:
		fmt.Fprintf(w, `{"transcripts":[%s],"meta":{"next_page_url":null}}`, transcript(0))
	}
}

// TestWrongKey ends at once if the platform or the server refuses the key.
func TestWrongKey(t *testing.T) {
	t.Parallel()
	d := newDesk(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
	c := importer.Calls{ServerFlags: importer.ServerFlags{Server: d.URL}, APIKeyEnv: "KEY", APIURL: d.URL, Since: "1d", Platforms: []string{"vapi"}}
	if err := c.Import(context.Background(), env(&bytes.Buffer{})); err == nil || !strings.Contains(err.Error(), "401") {
		t.Errorf("%v", err)
	}
}

// TestMemories maps each product's memories to callers and facts with their times.
func TestMemories(t *testing.T) {
	t.Parallel()
	for product, c := range map[string]struct{ file, path, want string }{
		"mem0": {`{"results":[{"id":"m1","memory":"Likes  tea","user_id":"+49 30 123456","created_at":"2025-01-02T03:04:05-07:00","updated_at":"2025-02-02T00:00:00Z","categories":["food"]},
			{"id":"m2","memory":"x","user_id":"anonymous"}]}`, "/v1/users/+4930123456/facts/mem0-m1",
			`{"id":"mem0-m1","content":"Likes tea","topics":["food"],"created_at":"2025-01-02T10:04:05.000Z","last_seen_at":"2025-02-02T00:00:00.000Z","by":"imported","cause":"mem0"}`},
		"zep": {`{"user_id":"anna","edges":[{"uuid":"z1","fact":"Lives in Bonn","name":"LIVES_IN","created_at":"2025-01-02T00:00:00Z","valid_at":"2024-01-01T00:00:00Z","invalid_at":"2025-06-01T00:00:00Z"}]}`,
			"/v1/users/anna/facts/zep-z1",
			`{"id":"zep-z1","content":"Lives in Bonn","created_at":"2025-01-02T00:00:00.000Z","valid_from":"2024-01-01T00:00:00.000Z","valid_to":"2025-06-01T00:00:00.000Z","by":"imported","cause":"zep"}`},
		"redis": {`{"memories":[{"id":"r1","text":"Called about a train","user_id":"anna","created_at":"2025-01-02T00:00:00Z","last_accessed":"2025-03-02T00:00:00Z","updated_at":"2025-01-03T00:00:00Z","topics":["train"],"memory_type":"episodic"}],"total":1}`,
			"/v1/users/anna/facts/redis-r1",
			`{"id":"redis-r1","content":"Called about a train","kind":"event","topics":["train"],"created_at":"2025-01-02T00:00:00.000Z","last_seen_at":"2025-03-02T00:00:00.000Z","by":"imported","cause":"redis"}`},
		"hindsight": {`{"bank_id":"anna","items":[{"id":"h1","text":"Is a nurse","mentioned_at":"2025-01-02T00:00:00Z","fact_type":"world"}]}`, "/v1/users/anna/facts/hindsight-h1",
			`{"id":"hindsight-h1","content":"Is a nurse","created_at":"2025-01-02T00:00:00.000Z","by":"imported","cause":"hindsight"}`},
	} {
		t.Run(product, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "m.json")
			if err := os.WriteFile(file, []byte(c.file), 0o600); err != nil {
				t.Fatal(err)
			}
			d := newDesk(t, http.NotFound)
			for _, want := range []string{"1 filed", "0 filed, 1 known"} {
				var log bytes.Buffer
				m := importer.Memories{ServerFlags: importer.ServerFlags{Server: d.URL}, File: file, Products: []string{product}}
				if err := m.Import(t.Context(), env(&log)); err != nil || !strings.Contains(log.String(), want) {
					t.Errorf("%v\n%s", err, log.String())
				}
			}
			if got := d.facts[c.path]; len(d.facts) != 1 || got != c.want {
				t.Errorf("%v\nwant %s", d.facts, c.want)
			}
		})
	}
}
