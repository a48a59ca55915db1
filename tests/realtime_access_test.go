package tests

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/heardlog/heardlog/realtime/realtimetest"
)

// refusedAsOpenAI demands an error in OpenAI's form.
func (a answer) refusedAsOpenAI(status int, words ...string) {
	a.t.Helper()
	var e struct{ Error struct{ Message string } }
	if err := json.Unmarshal(a.body, &e); err != nil || a.status != status || e.Error.Message == "" {
		a.t.Errorf("%s: %d %s, want %d", a.call, a.status, a.body, status)
	}
	for _, w := range words {
		if !strings.Contains(e.Error.Message, w) {
			a.t.Errorf("%s: the error %q does not name %q", a.call, e.Error.Message, w)
		}
	}
}

func TestRealtimeRefusals(t *testing.T) {
	t.Parallel()
	fake := realtimetest.New(t, realtimetest.Config{})
	s := start(t, "HEARDLOG_REALTIME_URL="+fake.URL, "HEARDLOG_CREDENTIALS=shop=id:secret", "HEARDLOG_PROJECT_SOCKETS=1")
	key := []string{"Authorization", "Bearer id:secret"}
	up := append([]string{"Upgrade", "websocket", "Connection", "Upgrade", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="}, key...)
	id, ended := s.join("a", nil, key...), s.join("b", nil, key...)
	s.post(agent(ended, "/leave"), nil, key...).ok(nil)
	var made struct {
		ID, Secret, Key string
	}
	s.post(v1+"/keys", map[string]any{"name": "reader", "scopes": []string{"read"}}, key...).is(http.StatusCreated, &made)
	secret := made.Secret
	if secret == "" {
		secret = made.Key
	}
	for _, path := range []string{"/realtime", "/agents/" + id + "/realtime"} {
		s.get(v1+path, key...).refusedAsOpenAI(400, "WebSocket")
		s.get(v1 + path).refusedAsOpenAI(401)
		s.get(v1+path, "Authorization", "Bearer ek_forged.x").refusedAsOpenAI(401)
		s.get(v1+path, "Authorization", "Bearer "+secret).refusedAsOpenAI(403)
	}
	s.get(v1+"/realtime", up...).refusedAsOpenAI(400, "agent_id")
	s.get(v1+"/realtime?agent_id=unknown", up...).refusedAsOpenAI(404)
	s.get(agent("unknown", "/realtime"), up...).refusedAsOpenAI(404)
	s.get(v1+"/realtime?agent_id="+ended, up...).refusedAsOpenAI(410)
	s.get(agent(ended, "/realtime"), up...).refusedAsOpenAI(410)
	c := s.connect("/realtime?agent_id="+id, key...)
	c.await("session.created", 1)
	s.get(v1+"/realtime?agent_id="+id, up...).refusedAsOpenAI(429, "limit")
	s.get(agent(id, "/realtime"), up...).refusedAsOpenAI(429, "limit")
	c.hangUp()
	if !realtimetest.Wait(patience, func() bool {
		c, err := s.tryRealtime("/realtime?agent_id="+id, key...)
		if err == nil {
			c.hangUp()
		}
		return err == nil
	}) {
		t.Error("the place of the first socket was not given back")
	}
	fake.SetRefuse(401)
	realtimetest.Wait(patience, func() bool { return s.get(v1+"/realtime?agent_id="+id, up...).status != 429 })
	s.get(v1+"/realtime?agent_id="+id, up...).refusedAsOpenAI(502, "401")
}

func TestRealtimeClientSecrets(t *testing.T) {
	t.Parallel()
	fake := realtimetest.New(t, realtimetest.Config{})
	s := start(t, "HEARDLOG_REALTIME_URL="+fake.URL, "HEARDLOG_CREDENTIALS=shop=id:secret", "HEARDLOG_AUTO_JOIN=true", "HEARDLOG_REALTIME_API_KEY=sk-up")
	key := []string{"Authorization", "Bearer id:secret"}
	id, other, ended := s.join("a", nil, key...), s.join("b", nil, key...), s.join("c", nil, key...)
	s.post(agent(ended, "/leave"), nil, key...).ok(nil)
	const path = v1 + "/realtime/client_secrets"
	var made struct {
		Value     string
		ExpiresAt int64 `json:"expires_at"`
		Session   map[string]any
	}
	s.post(path, map[string]any{
		"agent_id": id, "expires_after": map[string]any{"anchor": "created_at", "seconds": 60}, "session": map[string]any{"type": "realtime", "model": "gpt-realtime-mini", "instructions": "Be brief."},
	}, key...).ok(&made)
	if !strings.HasPrefix(made.Value, "ek_") || made.ExpiresAt == 0 || made.Session["instructions"] != "Be brief." {
		t.Errorf("%+v", made)
	}
	s.post(path, map[string]any{}).refusedAsOpenAI(401)
	s.post(path, map[string]any{"expires_after": map[string]any{"seconds": 9}}, key...).refusedAsOpenAI(400, "from 10 to 7200")
	s.post(path, map[string]any{"session": []any{}}, key...).refusedAsOpenAI(400, "session")
	s.post(path, map[string]any{"agent_id": "unknown"}, key...).refusedAsOpenAI(404)
	s.post(path, map[string]any{"agent_id": ended}, key...).refusedAsOpenAI(410)
	s.post(path, map[string]any{}, "Authorization", "Bearer "+made.Value).refusedAsOpenAI(401)
	s.post(path, strings.Repeat(" ", 2<<20), key...).refusedAsOpenAI(413)
	s.get(agent(id, "/history"), "Authorization", "Bearer "+made.Value).refused(401, "InvalidPermission")

	// As a browser sends it, from a page of another site.
	c := s.connect("/realtime", "Sec-WebSocket-Protocol", "realtime", "Sec-WebSocket-Protocol", "openai-insecure-api-key."+made.Value, "Origin", "https://shop.example")
	c.await("session.updated", 1)
	if h := fake.Headers[0]; h.Get("Authorization") != "Bearer sk-up" || fake.Queries[0] != "model=gpt-realtime-mini" || strings.Contains(h.Get("Sec-Websocket-Protocol"), "ek_") {
		t.Errorf("upstream got %v, %q", h, fake.Queries[0])
	}
	if got := fake.Last().Session()["instructions"]; got != "Be brief." {
		t.Errorf("instructions %q", got)
	}
	c.write("Hello?")
	c.await("conversation.item.added", 1)
	s.storedAs(id, key, func(l []entry) bool { return len(l) == 1 })
	if _, err := s.tryRealtime("/agents/"+other+"/realtime", "Authorization", "Bearer "+made.Value); err == nil {
		t.Error("the secret opened the call of another agent")
	}
	if _, err := s.tryRealtime("/realtime", "Authorization", "Bearer "+made.Value+"x"); err == nil {
		t.Error("a changed secret was accepted")
	}

	// Without an agent, each socket is a call of its own, which ends with it.
	s.post(path, map[string]any{"user_id": "ada"}, key...).ok(&made)
	c = s.connect("/realtime?user_id=eve", "Authorization", "Bearer "+made.Value)
	c.write("Hello?")
	c.await("conversation.item.added", 1)
	c.hangUp()
	var found struct {
		Agents []struct {
			AgentID string `json:"agent_id"`
			Status  string
		}
	}
	if !realtimetest.Wait(patience, func() bool {
		s.get(v1+"/agents?user_id=ada&status=stopped", key...).ok(&found)
		return len(found.Agents) == 1
	}) {
		t.Errorf("calls of the caller: %+v", found)
	}
}

// A page of another site must not reach an open server through its user's browser.
func TestRealtimeOrigins(t *testing.T) {
	t.Parallel()
	fake := realtimetest.New(t, realtimetest.Config{})
	s := start(t, "HEARDLOG_REALTIME_URL="+fake.URL, "HEARDLOG_AUTO_JOIN=true", "HEARDLOG_CORS_ORIGINS=https://app.example")
	for origin, want := range map[string]bool{"https://evil.example": false, "https://app.example": true, s.url: true} {
		c, err := s.tryRealtime("/realtime", "Origin", origin)
		if (err == nil) != want {
			t.Errorf("%s: %v", origin, err)
		}
		if err == nil {
			c.hangUp()
		}
	}
}

func TestRealtimeOwnServer(t *testing.T) {
	t.Parallel()
	fake := realtimetest.New(t, realtimetest.Config{})
	s := start(t, "HEARDLOG_REALTIME_URL=ws://127.0.0.1:1/none", "HEARDLOG_REALTIME_API_KEY=sk-servers")
	id := s.join("own", map[string]any{"heardlog": map[string]any{"realtime": map[string]any{"url": fake.URL + "?model=m", "api_key": "sk-own", "headers": map[string]any{"X-Mine": "1"}}}})
	c := s.connect("/agents/" + id + "/realtime?call_id=rtc_1")
	c.await("session.created", 1)
	if h := fake.Headers[0]; h.Get("Authorization") != "Bearer sk-own" || h.Get("X-Mine") != "1" || fake.Queries[0] != "call_id=rtc_1&model=m" {
		t.Errorf("%v %q", h, fake.Queries[0])
	}
	s.post(v1+"/join", map[string]any{"name": "x", "properties": map[string]any{"heardlog": map[string]any{"realtime": map[string]any{"url": "ftp://x"}}}}).refused(400, "InvalidFieldValue", "realtime.url")
}

// A socket beside a call over WebRTC follows what the server reports, and ends with it.
func TestRealtimeSideband(t *testing.T) {
	t.Parallel()
	fake := realtimetest.New(t, realtimetest.Config{Hear: func(int) string { return "Hello?" }})
	s := start(t, "HEARDLOG_REALTIME_URL="+fake.URL)
	id := s.join("side", nil)
	s.say(id, user("My name is Ada."))
	c := s.connect("/agents/" + id + "/realtime?call_id=rtc_1")
	c.await("session.created", 1)
	if !realtimetest.Wait(patience, func() bool { return len(fake.Last().Items()) == 1 }) {
		t.Error("the memory was not sent")
	}
	fake.Last().Speak()
	fake.Last().Respond(nil)
	done := c.await("response.done", 1)
	fake.Last().Send(map[string]any{"type": "conversation.item.truncated", "item_id": outputID(done), "content_index": 0, "audio_end_ms": 0})
	list := s.stored(id, func(l []entry) bool { return len(l) == 3 && l[2].interrupted() })
	if list[1].Content != "Hello?" || list[2].Content != "" {
		t.Errorf("%s", said(list))
	}
	fake.Last().Close(1000, "")
	if code := c.closed(); code != websocket.StatusNormalClosure {
		t.Errorf("closed with %d", code)
	}
}

// The end of the server, and of the agent, is the end of the socket.
func TestRealtimeEnds(t *testing.T) {
	t.Parallel()
	s, _, id, c := relayed(t, realtimetest.Config{})
	c.write("Hello?")
	c.await("conversation.item.added", 1)
	s.stored(id, func(l []entry) bool { return len(l) == 1 })
	s.post(agent(id, "/leave"), nil).ok(nil)
	c.write("Are you there?")
	if code := c.closed(); code != websocket.StatusNormalClosure {
		t.Errorf("closed with %d after leave", code)
	}
	other := s.join("other", nil)
	c = s.connect("/agents/" + other + "/realtime")
	c.write("The last words.")
	c.await("conversation.item.added", 1)
	s.stop()
	if code := c.closed(); code != websocket.StatusGoingAway {
		t.Errorf("closed with %d by the server", code)
	}
	s = s.again()
	if list := s.entries(other); len(list) != 1 {
		t.Errorf("%d messages after the end", len(list))
	}
}
