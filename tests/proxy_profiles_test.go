package tests

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/heardlog/heardlog/config"
	"github.com/heardlog/heardlog/examples/fakellm/fake"
	"github.com/heardlog/heardlog/internal/app"
)

// call sends a chat completion that names no agent and returns the agent that answered.
func (s *server) call(body string, headers ...string) string {
	s.t.Helper()
	body = strings.Replace(body, "{", `{"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Hello"}],`, 1)
	body = strings.Replace(body, ",}", "}", 1)
	return s.post(v1+"/chat/completions", body, headers...).ok(nil).header.Get("X-Heardlog-Agent")
}

// TestCallKeys: each platform's key finds the same agent each time, also after a restart, and
// starts a new one once that agent has stopped.
func TestCallKeys(t *testing.T) {
	t.Parallel()
	_, base := upstream(t, fake.Script{Answer: "Hi."})
	s := start(t, "HEARDLOG_LLM_URL="+base, "HEARDLOG_AUTO_JOIN=true",
		`HEARDLOG_PROFILES=[{"name":"acme","header":"X-Acme-Call"},{"project":"other","name":"theirs","header":"X-LiveKit-Session-ID"},{"name":"deep","path":"metadata.session.id"}]`)
	agents := map[string]string{}
	for name, tt := range map[string]struct {
		body, key string
		headers   []string
		weak      bool
	}{
		"vapi":                {`{"call":{"id":"c-1"}}`, "vapi.call:c-1", nil, false},
		"vapi, older":         {`{"call":{"callId":"c-2"}}`, "vapi.call:c-2", nil, false},
		"elevenlabs":          {`{"elevenlabs_extra_body":{"conversation_id":"conv_1"}}`, "elevenlabs.conversation:conv_1", nil, false},
		"livekit":             {`{}`, "livekit.session:s-1", []string{"X-LiveKit-Session-ID", "s-1", "X-LiveKit-Room-ID", "r-1"}, false},
		"livekit, job":        {`{}`, "livekit.job:j-1", []string{"X-LiveKit-Session-ID", "inference_5f", "X-LiveKit-Room-ID", "r-2", "X-LiveKit-Job-ID", "j-1"}, false},
		"livekit, room":       {`{}`, "livekit.room:r-1", []string{"X-LiveKit-Room-ID", "r-1"}, false},
		"agora params":        {`{"channel":"room-9"}`, "agora.channel:room-9", nil, false},
		"agora context":       {`{"context":{"channel":"room-8","userId":7}}`, "agora.channel:room-8", nil, false},
		"agora header":        {`{}`, "agora.channel:room-7", []string{"X-Agora-Customllm-Channel", "room-7"}, false},
		"twilio":              {`{"metadata":{"callSid":"CA1"}}`, "twilio.call:CA1", nil, false},
		"telnyx":              {`{"metadata":{"call_control_id":"v3:x"}}`, "telnyx.call:v3:x", nil, false},
		"retell":              {`{"metadata":{"call_id":"call_1"}}`, "retell.call:call_1", nil, false},
		"pipecat":             {`{"metadata":{"session_id":5}}`, "pipecat.session:5", nil, false},
		"openai":              {`{"metadata":{"conversation_id":"x"}}`, "openai.conversation:x", nil, false},
		"openwebui":           {`{"user":"ann"}`, "openwebui.chat:w-1", []string{"X-OpenWebUI-Chat-Id", "w-1"}, false},
		"librechat":           {`{"user":"ann"}`, "openai.conversation:l-1", []string{"X-Conversation-Id", "l-1"}, false},
		"litellm":             {`{}`, "litellm.session:t-1", []string{"X-LiteLLM-Session-Id", "t-1"}, false},
		"litellm body":        {`{"litellm_session_id":"t-2"}`, "litellm.session:t-2", nil, false},
		"helicone":            {`{}`, "helicone.session:h-1", []string{"Helicone-Session-Id", "h-1"}, false},
		"session header":      {`{"user":"ann"}`, "openai.session:x-1", []string{"X-Session-Id", "x-1"}, false},
		"session body":        {`{"session_id":"x-2"}`, "openai.session:x-2", nil, false},
		"thread":              {`{"metadata":{"thread_id":"t-1"}}`, "openai.thread:t-1", []string{"X-Session-Id", "x-1"}, false},
		"thread header":       {`{}`, "openai.thread:t-2", []string{"X-Thread-Id", "t-2"}, false},
		"chat":                {`{"metadata":{"chat_id":"c-1"}}`, "openai.chat:c-1", nil, false},
		"an unfilled header":  {`{"metadata":{"thread_id":"t-3"}}`, "openai.thread:t-3", []string{"X-Conversation-Id", "{{LIBRECHAT_BODY_CONVERSATIONID}}"}, false},
		"a chat not stored":   {`{"session_id":"x-3","metadata":{"thread_id":"undefined"}}`, "openai.session:x-3", []string{"X-OpenWebUI-Chat-Id", "local"}, false},
		"platform first":      {`{"call":{"id":"c-5"}}`, "vapi.call:c-5", []string{"X-Session-Id", "x-1"}, false},
		"openai safety":       {`{"safety_identifier":"ann@example.org"}`, "openai.safety_identifier:sha256-", nil, true},
		"openai user":         {`{"user":"ann@example.org"}`, "openai.user:sha256-", nil, true},
		"own header":          {`{"call":{"id":"c-1"}}`, "acme:a-1", []string{"X-Acme-Call", "a-1"}, false},
		"own path":            {`{"metadata":{"session":{"id":"d-1"}}}`, "deep:d-1", nil, false},
		"a value that is odd": {`{"call":{"id":"c 1"}}`, "vapi.call:sha256-", nil, false},
	} {
		id := s.call(tt.body, tt.headers...)
		a := s.agent(id)
		if len(a.Keys) != 1 || !strings.HasPrefix(a.Keys[0], tt.key) || a.WeakKey != tt.weak || a.Previous != "" || a.Status != "RUNNING" {
			t.Errorf("%s: %+v", name, a)
		}
		for other, taken := range agents {
			if taken == id {
				t.Errorf("%s and %s share agent %s", name, other, id)
			}
		}
		agents[name] = id
		if again := s.call(tt.body, tt.headers...); again != id {
			t.Errorf("%s: agent %s, then %s", name, id, again)
		}
	}
	for key, body := range map[string]string{"thread": `{"metadata":{"thread_id":"t-1"}`, "chat": `{"metadata":{"chat_id":"c-1"}`, "session body": `{"session_id":"x-2"`} {
		if got := s.post(v1+"/responses", body+`,"input":"Hello"}`).ok(nil).header.Get("X-Heardlog-Agent"); got != agents[key] {
			t.Errorf("in the Responses API, the %s finds %q", key, got)
		}
	}
	first := agents["vapi"]
	s = s.again()
	if id := s.call(`{"call":{"id":"c-1"}}`); id != first {
		t.Errorf("after a restart %s, before it %s", id, first)
	}
	if id := s.call(`{"call":{"id":"c-1"},"metadata":{"agent_id":"` + agents["twilio"] + `"}}`); id != agents["twilio"] {
		t.Errorf("a key wins over metadata.agent_id: %s", id)
	}
	s.post(agent(first, "/leave"), nil).ok(nil)
	second := s.call(`{"call":{"id":"c-1"}}`)
	if a := s.agent(second); second == first || a.Previous != first {
		t.Errorf("after the end of %s: %s, %+v", first, second, a)
	}
}

// TestCallKeyRace: many first requests of one call make one agent.
func TestCallKeyRace(t *testing.T) {
	t.Parallel()
	_, base := upstream(t, fake.Script{Answer: "Hi."})
	s := start(t, "HEARDLOG_LLM_URL="+base, "HEARDLOG_AUTO_JOIN=true")
	ids := make([]string, 12)
	var wg sync.WaitGroup
	for i := range ids {
		wg.Go(func() {
			ids[i] = s.post(v1+"/chat/completions", `{"messages":[{"role":"user","content":"Hello"}],"call":{"id":"c"}}`).header.Get("X-Heardlog-Agent")
		})
	}
	wg.Wait()
	slices.Sort(ids)
	if ids[0] == "" || len(slices.Compact(ids)) != 1 {
		t.Errorf("agents %q", ids)
	}
}

// TestCallKeysWithoutAutoJoin: joined agents are found by the keys of their join and by their
// channel, and by no other keys.
func TestCallKeysWithoutAutoJoin(t *testing.T) {
	t.Parallel()
	_, base := upstream(t, fake.Script{Answer: "Hi."})
	s := start(t, "HEARDLOG_LLM_URL="+base, "HEARDLOG_AUTO_JOIN=false")
	keyed := func(keys ...string) map[string]any {
		return map[string]any{"channel": "room-1", "heardlog": map[string]any{"keys": keys}}
	}
	id := s.join("n", keyed("vapi.call:c-1", "openai.user:ann"))
	for _, body := range []string{`{"call":{"id":"c-1"}}`, `{"user":"ann"}`, `{"channel":"room-1"}`} {
		if got := s.call(body); got != id {
			t.Errorf("%s finds %q", body, got)
		}
	}
	s.post(v1+"/join", map[string]any{"name": "other", "properties": keyed("vapi.call:c-1")}).refused(http.StatusConflict, "TaskConflict", `properties.heardlog.keys: a running agent has the key "vapi.call:c-1" already`, id+" must leave first")
	newer := s.join("newer", keyed())
	if got := s.call(`{"channel":"room-1"}`); got != newer {
		t.Errorf("of two agents in a channel %s is found, not the newer", got)
	}
	s.post(v1+"/join", map[string]any{"name": "bad", "properties": keyed("no colon")}).refused(http.StatusBadRequest, "InvalidFieldValue", "properties.heardlog.keys[0]", "no colon")
	s.post(v1+"/chat/completions", `{"messages":[{"role":"user","content":"x"}],"call":{"id":"c-9"}}`).failed(http.StatusNotFound, "not_found", "vapi.call:c-9: set HEARDLOG_AUTO_JOIN=true")
	s.post(v1+"/chat/completions", `{"messages":[{"role":"user","content":"x"}]}`).failed(http.StatusBadRequest, "missing", "/v1/profiles")

	// Events find their call too, also after its end.
	s.say(id, user("When?"), assistant(trainAnswer))
	s.post(agent(id, "/leave"), nil).ok(nil)
	var out recorded
	s.post(v1+"/evidence/vapi", `{"message":{"type":"user-interrupted","timestamp":1780000013900,"call":{"id":"c-1"}}}`).ok(&out)
	if out.AgentID != id || len(out.Recorded) != 1 || out.Recorded[0].Method != "disconnect_only" {
		t.Errorf("%+v", out)
	}
	s.post(v1+"/evidence/twilio", `{"type":"interrupt","utteranceUntilInterrupt":"The train"}`, "X-Agent-Id", id).ok(&out)
	if m := s.last(id); m.Content != "The train" {
		t.Errorf("%+v", m)
	}
	s.post(v1+"/evidence/vapi", `{"message":{"type":"user-interrupted","call":{"id":"c-7"}}}`).refused(http.StatusNotFound, "TaskNotFound", "vapi.call:c-7")
	s.post(v1+"/evidence/vapi", `{"message":{"type":"user-interrupted"}}`).refused(http.StatusBadRequest, "MissingRequiredField", "X-Agent-Id")
	s.post(v1+"/evidence/vapi", `{"message":{"type":"status-update","call":{"id":"c-7"}}}`).ok(&out)
	s.post(v1+"/evidence/acme", `{}`).refused(http.StatusNotFound, "TaskNotFound", "acme", "livekit")
	s.post(v1+"/evidence/vapi", `{}`, "X-Agent-Id", "../x").refused(http.StatusBadRequest, "MissingRequiredField", "type")
}

// TestNoKey: with a setting, calls are identified by their first words.
func TestNoKey(t *testing.T) {
	t.Parallel()
	_, base := upstream(t, fake.Script{Answer: "Hi."})
	s := start(t, "HEARDLOG_LLM_URL="+base, "HEARDLOG_AUTO_JOIN=true", "HEARDLOG_NO_KEY=words")
	talk := func(words ...string) string {
		msgs := []any{map[string]any{"role": "system", "content": "Be brief."}}
		for i, w := range words {
			msgs = append(msgs, map[string]any{"role": []string{"user", "assistant"}[i%2], "content": w})
		}
		return s.post(v1+"/chat/completions", map[string]any{"messages": msgs}).ok(nil).header.Get("X-Heardlog-Agent")
	}
	id := talk("Hello")
	if again := talk("Hello", "Hi.", "When?"); again != id || !s.agent(id).WeakKey {
		t.Errorf("%s, then %s: %+v", id, again, s.agent(id))
	}
	if other := talk("Good morning"); other == id {
		t.Error("two calls share an agent")
	}
	var out struct {
		NoKey    string `json:"no_key"`
		Profiles []struct{ Name string }
	}
	s.get(v1 + "/profiles").ok(&out)
	if out.NoKey != "words" || len(out.Profiles) < 10 {
		t.Errorf("%+v", out)
	}
}

// TestUnnamedCalls: an open server starts a call for a request that names none, and goes on with it
// when the client repeats its list. Two callers never get each other's call.
func TestUnnamedCalls(t *testing.T) {
	t.Parallel()
	llm, base := upstream(t, fake.Script{Answer: "At nine."})
	s := start(t, "HEARDLOG_LLM_URL="+base)
	ask := func(s *server, path string, body map[string]any) (id string, list []any) {
		t.Helper()
		list, _ = body["messages"].([]any)
		id = s.post(v1+path, body).ok(nil).header.Get("X-Heardlog-Agent")
		return id, append(slices.Clone(list), listed("assistant", "At nine."))
	}
	chat := func(list ...any) (string, []any) {
		t.Helper()
		return ask(s, "/chat/completions", map[string]any{"messages": list})
	}
	system := listed("system", "Be brief.")
	anna, annas := chat(system, listed("user", "When?"))
	bert, berts := chat(system, listed("user", "When?"))
	if anna == bert || anna == "" {
		t.Fatalf("two calls that begin with the same words: %s and %s", anna, bert)
	}
	// Which of them goes on with which is not known, and the same: neither has more than the other.
	first, annas := chat(append(annas, listed("user", "I am Anna."))...)
	second, _ := chat(append(berts, listed("user", "I am Bert."))...)
	if first == second || first != anna && first != bert || second != anna && second != bert {
		t.Errorf("%s and %s go on as %s and %s", anna, bert, first, second)
	}
	again, annas := chat(append(annas, listed("user", "And back?"))...)
	if want := []string{"0 user: When?", "0 assistant: At nine.", "1 user: I am Anna.", "1 assistant: At nine.", "2 user: And back?", "2 assistant: At nine."}; again != first || !slices.Equal(s.ledgerTexts(first), want) {
		t.Errorf("%s went on as %s: %q", first, again, s.ledgerTexts(first))
	}
	// A retry, and the result of a tool, belong to the call.
	if retried, _ := chat(annas[:len(annas)-1]...); retried != first {
		t.Errorf("a retry went to %s instead of %s", retried, first)
	}
	// Another list is another call, and so is what goes on after the call's end.
	if other, _ := chat(system, listed("user", "When?"), listed("assistant", "At ten."), listed("user", "Really?")); other == first || other == second {
		t.Errorf("an unknown list went to %s", other)
	}
	s.post(v1+"/agents/"+first+"/leave", nil).ok(nil)
	last, _ := chat(append(annas, listed("user", "Still there?"))...)
	if last == first || len(s.ledgerTexts(last)) != 8 {
		t.Errorf("after the end: %s %q", last, s.ledgerTexts(last))
	}
	// The Responses API, with lists and with the response before.
	one := s.post(v1+"/responses", map[string]any{"input": "When?"}).ok(nil)
	id := one.header.Get("X-Heardlog-Agent")
	two, _ := ask(s, "/responses", map[string]any{"input": []any{listed("user", "When?"), listed("assistant", "At nine."), listed("user", "And back?")}})
	if two != id || id == "" {
		t.Errorf("a response went to %s, and its next to %s", id, two)
	}
	if n := len(llm.Requests()); n != 10 {
		t.Errorf("the LLM was asked %d times", n)
	}
	locked := start(t, "HEARDLOG_LLM_URL="+base, "HEARDLOG_CREDENTIALS=p=id:secret", "HEARDLOG_AUTO_JOIN=true")
	locked.post(v1+"/chat/completions", map[string]any{"messages": []any{listed("user", "Hi")}}, "Authorization", "Bearer secret").failed(400, "missing", "metadata.agent_id")
}

func listed(role, text string) any { return map[string]any{"role": role, "content": text} }

func TestProfilesRefused(t *testing.T) {
	t.Parallel()
	for setting, want := range map[string]string{
		`[{"name":"vapi","header":"X"}]`: "is the name of a profile", `{}`: "array", `[{"name":"a"}]`: "exactly one", `[{"name":"A","header":"X"}]`: `"A"`,
		`[{"name":"a","header":"X Y"}]`: "header", `[{"name":"a","path":"a|b"}]`: "path", `[{"name":"a","header":"X","more":1}]`: "more", `[]x`: "one JSON value",
		`[{"name":"a","header":"X","project":"/"}]`: "project",
	} {
		c, err := config.Load(func(name string) string { return map[string]string{"HEARDLOG_PROFILES": setting}[name] })
		if err == nil {
			err = app.Check(c)
		}
		if !strings.Contains(fmt.Sprint(err), "HEARDLOG_PROFILES: ") || !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%s: %v", setting, err)
		}
	}
}

// TestProfileGuards: the calls that stand under /v1 alone are guarded as all others.
func TestProfileGuards(t *testing.T) {
	t.Parallel()
	closed, open := start(t, twoTenants), start(t)
	limited := start(t, "HEARDLOG_RATE_LIMIT=1")
	for _, c := range []struct{ method, path string }{{"GET", "/v1/profiles"}, {"GET", "/v1/policies"}, {"POST", "/v1/evidence/twilio"}} {
		closed.do(c.method, c.path, `{}`).refused(http.StatusUnauthorized, "InvalidPermission")
		open.do(c.method, c.path, `{}`, "Host", "evil.example").refused(http.StatusForbidden, "InvalidPermission")
		for got := limited.do(c.method, c.path, `{"type":"setup"}`); ; got = limited.do(c.method, c.path, `{"type":"setup"}`) {
			if got.status == http.StatusTooManyRequests {
				break
			}
			got.ok(nil)
		}
	}
	// Another project's agent is not found by its key.
	alice, bob := []string{"Authorization", basic("alice", "wonder")}, []string{"Authorization", basic("bob", "builder")}
	id := closed.join("n", map[string]any{"heardlog": map[string]any{"keys": []string{"twilio.call:CA1"}}}, alice...)
	closed.post(agent(id, "/messages"), map[string]any{"messages": []any{user("When?"), assistant(trainAnswer)}}, alice...).ok(nil)
	event := `{"type":"interrupt","utteranceUntilInterrupt":"The train","callSid":"CA1"}`
	closed.post("/v1/evidence/twilio", event, bob...).refused(http.StatusNotFound, "TaskNotFound", "twilio.call:CA1")
	var out recorded
	closed.post("/v1/evidence/twilio", event, alice...).ok(&out)
	if out.AgentID != id || len(out.Recorded) != 1 {
		t.Errorf("%+v", out)
	}
}

// TestFrontEndsApart: the same chat ID in two projects is two chats.
func TestFrontEndsApart(t *testing.T) {
	t.Parallel()
	_, base := upstream(t, fake.Script{Answer: "Hi."})
	s := start(t, twoTenants, "HEARDLOG_LLM_URL="+base, "HEARDLOG_AUTO_JOIN=true")
	seen := map[string]string{}
	for _, header := range []string{"X-OpenWebUI-Chat-Id", "X-Session-Id", "X-Conversation-Id", "X-Thread-Id"} {
		for _, who := range []string{basic("alice", "wonder"), basic("bob", "builder")} {
			id := s.call(`{}`, header, "same", "Authorization", who)
			if of, ok := seen[id]; ok {
				t.Errorf("%s of %s is the chat of %s", header, who, of)
			}
			if seen[id] = header + who; s.call(`{}`, header, "same", "Authorization", who) != id {
				t.Errorf("%s of %s finds two chats", header, who)
			}
		}
	}
}

// TestChannelFindsTheNewest: a channel finds the newest agent that joined with it, also after a
// restart.
func TestChannelFindsTheNewest(t *testing.T) {
	t.Parallel()
	_, base := upstream(t, fake.Script{})
	s := start(t, "HEARDLOG_LLM_URL="+base, "HEARDLOG_AUTO_JOIN=true")
	finds := func() string {
		return s.post("/v1/chat/completions", map[string]any{"messages": []any{user("hi")}}, "X-Agora-Customllm-Channel", "room").ok(nil).header.Get("X-Heardlog-Agent")
	}
	if first := finds(); first != finds() {
		t.Fatal("one channel, two agents")
	}
	id := s.join("joined", map[string]any{"channel": "room"})
	if got := finds(); got != id {
		t.Errorf("found %s; want %s", got, id)
	}
	s = s.again()
	if got := finds(); got != id {
		t.Errorf("after a restart: found %s; want %s", got, id)
	}
}
