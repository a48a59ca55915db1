package compat_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"
)

// relay runs a server of examples/relays and returns its address.
func relay(t *testing.T, s *server, file string, env ...string) (string, *process) {
	t.Helper()
	node, path := example(t, "relays", file)
	p := run(t, node, []string{path}, append(env, "HEARDLOG_URL="+s.url+"/v1", "PORT=0")...)
	const says = "listening on port "
	line, ok := p.stdout.find(func(l string) bool { return strings.HasPrefix(l, says) })
	if !ok {
		t.Fatalf("%s does not listen:\n%s%s", file, p.stdout, p.stderr)
	}
	return "127.0.0.1:" + strings.TrimPrefix(line, says), p
}

// peer is the platform's end of a WebSocket.
type peer struct {
	*websocket.Conn
	t   *testing.T
	ctx context.Context
}

func connect(t *testing.T, url string) peer {
	t.Helper()
	p := peer{t: t, ctx: within(t, patience)}
	var err error
	if p.Conn, _, err = websocket.Dial(p.ctx, url, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.CloseNow() })
	return p
}

func (p peer) send(m object) {
	p.t.Helper()
	if err := wsjson.Write(p.ctx, p.Conn, m); err != nil {
		p.t.Fatal(err)
	}
}

func (p peer) receive() map[string]any {
	p.t.Helper()
	var m map[string]any
	if err := wsjson.Read(p.ctx, p.Conn, &m); err != nil {
		p.t.Fatal(err)
	}
	return m
}

func (p peer) hangUp() {
	p.t.Helper()
	if err := p.Close(websocket.StatusNormalClosure, ""); err != nil {
		p.t.Fatal(err)
	}
}

// ends waits until the agent has ended and its ledger has these messages.
func (s *server) ends(t *testing.T, id string, want ...string) {
	t.Helper()
	eventually(t, "ended, with "+strings.Join(want, "; "), func() bool {
		return slices.Equal(said(s.ledger(t, id)), want) && s.statusOf(t, id) == "STOPPED"
	})
}

const trainAnswer = "The train leaves at nine from platform two. Shall I book a seat for you?"

// TestTwilioRelay plays a call of ConversationRelay with examples/relays/twilio.mjs.
func TestTwilioRelay(t *testing.T) {
	t.Parallel()
	s := start(t, "HEARDLOG_LLM_URL="+fakeLLM(t)+"/v1")
	addr, _ := relay(t, s, "twilio.mjs", "PUBLIC_HOST=relay.example")
	res, err := httpClient(t).Post("http://"+addr+"/twiml", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if twiml, err := io.ReadAll(res.Body); err != nil || !strings.Contains(string(twiml), `<ConversationRelay url="wss://relay.example/relay"`) {
		t.Errorf("%v, the TwiML is %s", err, twiml)
	}
	p := connect(t, "ws://"+addr+"/relay")
	p.send(object{"type": "setup", "sessionId": "VX1", "callSid": "CA1", "from": "+4930123456", "to": "+4930999999", "direction": "inbound"})
	p.send(object{"type": "prompt", "voicePrompt": "When is my train?", "lang": "en-US", "last": true})
	var said strings.Builder
	for {
		m := p.receive()
		if m["type"] != "text" {
			t.Fatalf("Twilio got %v", m)
		}
		said.WriteString(m["token"].(string))
		if m["last"] == true {
			break
		}
	}
	if said.String() != trainAnswer {
		t.Errorf("Twilio was told %q", said.String())
	}
	p.send(object{"type": "interrupt", "utteranceUntilInterrupt": "The train leaves", "durationUntilInterruptMs": "460"})
	p.hangUp()
	id := s.agentOf(t, "twilio", object{"type": "nothing", "callSid": "CA1"})
	s.ends(t, id, "assistant: Central station, how can I help?", "user: When is my train?", "assistant: The train leaves [interrupted]")
}

// TestRetellRelay plays a call of Retell with examples/relays/retell.mjs.
func TestRetellRelay(t *testing.T) {
	t.Parallel()
	s := start(t, "HEARDLOG_LLM_URL="+fakeLLM(t)+"/v1")
	addr, _ := relay(t, s, "retell.mjs", "GREETING=Hello.")
	p := connect(t, "ws://"+addr+"/llm/call_1")
	if m := p.receive(); m["content"] != "Hello." || m["response_id"] != 0.0 || m["content_complete"] != true {
		t.Errorf("the greeting is %v", m)
	}
	p.send(object{"interaction_type": "ping_pong", "timestamp": 1780000000000})
	if m := p.receive(); m["response_type"] != "ping_pong" {
		t.Errorf("the ping is answered with %v", m)
	}
	transcript := []object{{"role": "agent", "content": "Hello."}, {"role": "user", "content": "When is my train?"}}
	p.send(object{"interaction_type": "response_required", "response_id": 1, "transcript": transcript})
	var said strings.Builder
	for {
		m := p.receive()
		if m["response_type"] != "response" || m["response_id"] != 1.0 {
			t.Fatalf("Retell got %v", m)
		}
		said.WriteString(m["content"].(string))
		if m["content_complete"] == true {
			break
		}
	}
	if said.String() != trainAnswer {
		t.Errorf("Retell was told %q", said.String())
	}
	transcript = append(transcript, object{"role": "agent", "content": "The train leaves"}, object{"role": "user", "content": "Wait."})
	p.send(object{"interaction_type": "update_only", "transcript": transcript})
	p.hangUp()
	id := s.agentOf(t, "retell", object{"event": "nothing", "call_id": "call_1"})
	s.ends(t, id, "assistant: Hello.", "user: When is my train?", "assistant: The train leaves [interrupted]")
}

// TestRealtimeRelay plays both ends of examples/relays/realtime.mjs: a client, and OpenAI, whose
// transcript of the caller comes last.
func TestRealtimeRelay(t *testing.T) {
	t.Parallel()
	s := start(t)
	accepted := make(chan peer, 1)
	closed := make(chan struct{})
	openai := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header.Get("Authorization"); got != "Bearer sk-test" {
			t.Errorf("OpenAI got the authorization %q", got)
		}
		conn, err := websocket.Accept(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		accepted <- peer{Conn: conn, t: t, ctx: t.Context()}
		<-closed
	}))
	t.Cleanup(openai.Close)
	t.Cleanup(func() { close(closed) })
	addr, p := relay(t, s, "realtime.mjs", "OPENAI_API_KEY=sk-test", "OPENAI_REALTIME_URL="+strings.Replace(openai.URL, "http", "ws", 1))
	client := connect(t, "ws://"+addr+"/")
	client.send(object{"type": "session.update"})
	var upstream peer
	select {
	case upstream = <-accepted:
	case <-time.After(patience):
		t.Fatalf("the relay does not call OpenAI:\n%s", p.stderr)
	}
	if m := upstream.receive(); m["type"] != "session.update" {
		t.Errorf("OpenAI got %v first", m)
	}
	for _, m := range []object{
		{"type": "conversation.item.added", "item": object{"id": "u1", "type": "message", "role": "user", "content": []object{{"type": "input_audio"}}}},
		{"type": "conversation.item.added", "item": object{"id": "a1", "type": "message", "role": "assistant", "content": []object{}}},
		{"type": "response.output_audio_transcript.done", "item_id": "a1", "transcript": "The train leaves at nine from platform two."},
	} {
		upstream.send(m)
		if got := client.receive(); got["type"] != m["type"] {
			t.Errorf("the client got %v, want %v", got, m)
		}
	}
	client.send(object{"type": "conversation.item.truncate", "item_id": "a1", "content_index": 0, "audio_end_ms": 700})
	if m := upstream.receive(); m["type"] != "conversation.item.truncate" {
		t.Errorf("OpenAI got %v", m)
	}
	upstream.send(object{"type": "conversation.item.input_audio_transcription.completed", "item_id": "u1", "transcript": "When is my train?"})
	client.receive()
	client.hangUp()
	line, ok := p.stdout.find(func(l string) bool { return strings.HasPrefix(l, "agent ") })
	if !ok {
		t.Fatalf("the relay does not name its agent:\n%s%s", p.stdout, p.stderr)
	}
	s.ends(t, strings.TrimPrefix(line, "agent "), "user: When is my train?", "assistant: The train [interrupted]")
}

// TestWebhookRelay sends webhooks of four platforms to examples/relays/webhooks.mjs, with the right
// signature and with wrong ones.
func TestWebhookRelay(t *testing.T) {
	t.Parallel()
	s := start(t)
	addr, _ := relay(t, s, "webhooks.mjs", "VAPI_SECRET=v", "ELEVENLABS_SECRET=e", "RETELL_API_KEY=r", "AGORA_SECRET=a")
	sign := func(key, text string) string {
		h := hmac.New(sha256.New, []byte(key))
		h.Write([]byte(text))
		return hex.EncodeToString(h.Sum(nil))
	}
	now, old := time.Now(), time.Now().Add(-time.Hour)
	for _, tt := range []struct {
		name, platform, key string
		body                string // of the platform's last event
		header              string
		sign                func(body string, at time.Time) string // wrong if at is not now
	}{
		{"Vapi", "vapi", "vapi.call:c1", `{"message":{"type":"end-of-call-report","call":{"id":"c1"}}}`, "X-Vapi-Secret",
			func(_ string, at time.Time) string { return map[bool]string{true: "v", false: "w"}[at == now] }},
		{"ElevenLabs", "elevenlabs", "elevenlabs.conversation:c1", `{"type":"post_call_audio","data":{"conversation_id":"c1"}}`, "ElevenLabs-Signature",
			func(body string, at time.Time) string {
				return fmt.Sprintf("t=%d,v0=%s", at.Unix(), sign("e", fmt.Sprintf("%d.%s", at.Unix(), body)))
			}},
		{"Retell", "retell", "retell.call:c1", `{"event":"call_ended","call":{"call_id":"c1"}}`, "X-Retell-Signature",
			func(body string, at time.Time) string {
				return fmt.Sprintf("v=%d,d=%s", at.UnixMilli(), sign("r", fmt.Sprintf("%s%d", body, at.UnixMilli())))
			}},
		{"Agora", "agora", "agora.channel:c1", `{"eventType":102,"payload":{"channel":"c1"}}`, "Agora-Signature-V2",
			func(body string, at time.Time) string {
				return sign(map[bool]string{true: "a", false: "b"}[at == now], body)
			}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			id := s.join(t, tt.name, object{"heardlog": object{"keys": []string{tt.key}}})
			post := func(body, signature string) int {
				req, err := http.NewRequestWithContext(within(t, patience), http.MethodPost, "http://"+addr+"/"+tt.platform, strings.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				if signature != "" {
					req.Header.Set(tt.header, signature)
				}
				res, err := httpClient(t).Do(req)
				if err != nil {
					t.Fatal(err)
				}
				res.Body.Close()
				return res.StatusCode
			}
			for name, signature := range map[string]string{"none": "", "another": "x=1", "too old, or of another secret": tt.sign(tt.body, old), "cut": tt.sign(tt.body, now)[1:]} {
				if status := post(tt.body, signature); status != http.StatusUnauthorized {
					t.Errorf("the signature %s: %d", name, status)
				}
			}
			if status := post(tt.body, tt.sign(tt.body, now)); status != http.StatusOK {
				t.Fatalf("a signed webhook: %d", status)
			}
			if status := s.statusOf(t, id); status != "STOPPED" {
				t.Errorf("after the last event the agent is %s", status)
			}
		})
	}
}
