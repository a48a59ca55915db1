package compat_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"testing"
)

// agoraClient sends what Agora's published clients send. The clients themselves are in neither the
// Go module proxy nor the npm registry that the tests use. With community set it behaves like the
// older Go client, otherwise like the vendor's newer SDK.
type agoraClient struct {
	http      *http.Client
	base      string // up to and with the app id
	auth      string
	community bool
}

func newAgoraClient(s *server, base, auth string, community bool) *agoraClient {
	return &agoraClient{http: s.client, base: s.url + base, auth: auth, community: community}
}

// agoraError is an answer that is not 200.
type agoraError struct {
	Status  int
	Detail  string `json:"detail"`
	Reason  string `json:"reason"`
	AgentID string `json:"agent_id"`
	TaskID  string `json:"taskId"`
}

// Error returns the status and the reason.
func (e *agoraError) Error() string { return strconv.Itoa(e.Status) + " " + e.Reason + ": " + e.Detail }

// do makes one call. A status other than 200 is an error, and one without a JSON body breaks this
// client, as it does the real one.
func (c *agoraClient) do(ctx context.Context, method, path string, body, out any) error {
	var payload io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return err
		}
		payload = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, payload)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json;charset=utf-8") // on bodyless calls too
	req.Header["Authorization"] = []string{c.auth}                   // also where it is empty
	res, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.Header.Get("X-Request-Id") == "" {
		return errors.New("no X-Request-Id")
	}
	b, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK { // a 204 is not accepted either
		e := &agoraError{Status: res.StatusCode}
		if err := json.Unmarshal(b, e); err != nil {
			return fmt.Errorf("%s %s: status %d without JSON: %w", method, path, res.StatusCode, err)
		}
		return e
	}
	if out == nil || len(b) == 0 {
		return nil
	}
	return json.Unmarshal(b, out)
}

// started is the answer of join and update.
type started struct {
	AgentID  string `json:"agent_id"`
	CreateTS int64  `json:"create_ts"`
	Status   string `json:"status"`
	State    string `json:"state"` // where the community client reads the status after an update
}

func (c *agoraClient) join(ctx context.Context, name string, llm object) (started, error) {
	p := object{
		"channel": "room-1", "token": "", "agent_rtc_uid": "9001", "remote_rtc_uids": []string{"42"}, "idle_timeout": 120,
		"labels": object{"tenant": "t1"}, "llm": llm,
		"tts": object{"vendor": "microsoft", "params": object{"key": "k", "region": "eastus", "voice_name": "v"}},
	}
	// Removed and undocumented keys, and zero values of optional ones.
	if c.community {
		p["silence_timeout"], p["agent_rtm_uid"] = 0, ""
		p["vad"] = object{"interrupt_duration_ms": 160, "prefix_padding_ms": 300, "silence_duration_ms": 480, "threshold": 0.5}
		p["turn_detection"] = object{"type": "agora_vad", "interrupt_mode": "interrupt", "language": "en-US", "interrupt_duration_ms": 0, "eagerness": ""}
		p["enable_string_uid"] = false
		p["advanced_features"] = object{"enable_aivad": false, "enable_rtm": false}
	} else {
		p["parameters"] = object{"silence_config": object{"timeout_ms": 0, "action": "", "content": ""}, "farewell_config": object{"graceful_enabled": false, "graceful_timeout_seconds": 0}}
		p["geofence"] = nil
		p["mllm"] = object{"enable": false, "api_key": "", "messages": nil}
	}
	var out started
	err := c.do(ctx, "POST", "/join", object{"name": name, "properties": p}, &out)
	return out, err
}

func (c *agoraClient) update(ctx context.Context, id string, llm object) (started, error) {
	inner := object{"token": "007new", "llm": llm}
	body := object{"properties": inner}
	if c.community {
		body = inner
	}
	var out started
	err := c.do(ctx, "POST", "/agents/"+id+"/update", body, &out)
	if c.community {
		out.Status = out.State
	}
	return out, err
}

func (c *agoraClient) speak(ctx context.Context, id, text string) error {
	flag := "interruptable"
	if c.community {
		flag = "interrupt"
	}
	return c.do(ctx, "POST", "/agents/"+id+"/speak", object{"text": text, "priority": "INTERRUPT", flag: true}, nil)
}

func (c *agoraClient) think(ctx context.Context, id, text string) error {
	return c.do(ctx, "POST", "/agents/"+id+"/think", object{"text": text, "on_listening_action": "interrupt", "interruptable": true, "metadata": object{"why": "test"}}, nil)
}

func (c *agoraClient) interrupt(ctx context.Context, id string) error {
	if c.community {
		return c.do(ctx, "POST", "/agents/"+id+"/interrupt", nil, nil)
	}
	return c.do(ctx, "POST", "/agents/"+id+"/interrupt", object{}, nil)
}

func (c *agoraClient) leave(ctx context.Context, id string) error {
	return c.do(ctx, "POST", "/agents/"+id+"/leave", nil, nil)
}

type agoraAgent struct {
	AgentID string `json:"agent_id"`
	Name    string `json:"name"`
	Status  string `json:"status"`
	Message string `json:"message"`
	StartTS int64  `json:"start_ts"`
	StopTS  int64  `json:"stop_ts"`
}

func (c *agoraClient) query(ctx context.Context, id string) (agoraAgent, error) {
	var out agoraAgent
	err := c.do(ctx, "GET", "/agents/"+id, nil, &out)
	return out, err
}

type agoraHistory struct {
	AgentID  string    `json:"agent_id"`
	Status   string    `json:"status"`
	StartTS  int64     `json:"start_ts"`
	Contents []message `json:"contents"`
}

func (c *agoraClient) history(ctx context.Context, id string) (agoraHistory, error) {
	var out agoraHistory
	err := c.do(ctx, "GET", "/agents/"+id+"/history", nil, &out)
	for i := range out.Contents {
		out.Contents[i].State = "final"
	}
	return out, err
}

// list reads all pages. The newer SDK asks once more, with "cursor=", after the last page.
func (c *agoraClient) list(ctx context.Context, states string, limit int) ([]string, error) {
	var ids []string
	query := "?"
	values := url.Values{}
	if states != "" {
		values.Set("state", states) // arrives as 0%2C1%2C2
	}
	if limit > 0 {
		values.Set("limit", strconv.Itoa(limit))
	}
	query += values.Encode()
	for range 100 {
		var page struct {
			Status string
			Data   struct {
				Count int
				List  []agoraAgent
			}
			Meta struct {
				Cursor *string
				Total  int
			}
		}
		if err := c.do(ctx, "GET", "/agents"+query, nil, &page); err != nil {
			return ids, err
		}
		if page.Status != "ok" || page.Data.Count != len(page.Data.List) || page.Meta.Cursor == nil {
			return ids, fmt.Errorf("page %+v", page)
		}
		for _, a := range page.Data.List {
			ids = append(ids, a.AgentID)
		}
		if len(page.Data.List) == 0 || c.community && *page.Meta.Cursor == "" {
			return ids, nil
		}
		values.Set("cursor", *page.Meta.Cursor)
		query = "?" + values.Encode()
	}
	return ids, errors.New("the list never ends")
}

// reasonOf returns the status and reason of a refusal.
func reasonOf(t testing.TB, err error) string {
	t.Helper()
	e, ok := errors.AsType[*agoraError](err)
	if !ok {
		t.Fatalf("not a refusal: %v", err)
	}
	return strconv.Itoa(e.Status) + " " + e.Reason
}
