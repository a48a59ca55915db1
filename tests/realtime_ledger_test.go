package tests

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/coder/websocket"

	"github.com/heardlog/heardlog/realtime/realtimetest"
)

// replies answers one after the other, the last again and again.
func replies(list ...realtimetest.Reply) func([]realtimetest.Item, map[string]any) realtimetest.Reply {
	var n atomic.Int64
	return func([]realtimetest.Item, map[string]any) realtimetest.Reply {
		return list[min(int(n.Add(1)), len(list))-1]
	}
}

func outputID(e map[string]any) string {
	return e["response"].(map[string]any)["output"].([]any)[0].(map[string]any)["id"].(string)
}

// relayed starts a server in front of a fake, an agent and a client.
func relayed(t *testing.T, c realtimetest.Config, env ...string) (*server, *realtimetest.Server, string, *socket) {
	t.Helper()
	fake := realtimetest.New(t, c)
	s := start(t, append([]string{"HEARDLOG_REALTIME_URL=" + fake.URL}, env...)...)
	id := s.join("realtime", nil)
	client := s.connect("/agents/" + id + "/realtime")
	client.await("session.created", 1)
	return s, fake, id, client
}

func TestRealtimeTools(t *testing.T) {
	t.Parallel()
	s, _, id, c := relayed(t, realtimetest.Config{Answer: replies(
		realtimetest.Reply{Words: realtimetest.Paced("Let me look."), Call: "find_train", Arguments: `{"to":"Bonn"}`},
		realtimetest.Reply{Words: realtimetest.Paced("It leaves at nine.")},
	)})
	c.write("When is my train?")
	c.send(map[string]any{"type": "response.create"})
	c.await("response.done", 1)
	call := c.await("response.function_call_arguments.done", 1)["call_id"]
	c.send(map[string]any{"type": "conversation.item.create", "item": map[string]any{"type": "function_call_output", "call_id": call, "output": `{"at":"9:00"}`}})
	c.send(map[string]any{"type": "response.create"})
	c.await("response.done", 2)
	list := s.stored(id, func(l []entry) bool { return len(l) == 5 })
	if got, want := said(list), "user: When is my train?\nassistant: Let me look.\nassistant: \ntool: {\"at\":\"9:00\"}\nassistant: It leaves at nine.\n"; got != want {
		t.Errorf("got %s", got)
	}
	if list[2].ToolCalls == nil || !strings.Contains(string(list[2].ToolCalls), `find_train`) || list[3].ToolCallID != call {
		t.Errorf("the call %s, its result %q", list[2].ToolCalls, list[3].ToolCallID)
	}
	for _, e := range list {
		if e.TurnID != 0 {
			t.Errorf("turn %d of %s", e.TurnID, e.Content)
		}
	}
}

// A response with conversation "none" is not part of the call, and was not heard.
func TestRealtimeGhost(t *testing.T) {
	t.Parallel()
	s, _, id, c := relayed(t, realtimetest.Config{Answer: func(_ []realtimetest.Item, create map[string]any) realtimetest.Reply {
		if create["conversation"] == "none" {
			return realtimetest.Reply{Text: "support"}
		}
		return realtimetest.Reply{Text: "Hello there."}
	}})
	c.write("Hello?")
	c.send(map[string]any{"type": "response.create", "response": map[string]any{"conversation": "none", "metadata": map[string]any{"topic": "class"}, "output_modalities": []any{"text"}}})
	c.send(map[string]any{"type": "response.create"})
	c.await("response.done", 2)
	list := s.stored(id, func(l []entry) bool { return len(l) == 3 })
	var ghosts, heard []string
	for _, e := range list {
		if e.State == "superseded" {
			ghosts = append(ghosts, e.Content)
		} else {
			heard = append(heard, e.Content)
		}
	}
	if !slices.Equal(ghosts, []string{"support"}) || !slices.Equal(heard, []string{"Hello?", "Hello there."}) {
		t.Errorf("ghosts %q, heard %q", ghosts, heard)
	}
	if h := s.history(id); len(h.Contents) != 2 {
		t.Errorf("history has %d messages", len(h.Contents))
	}
}

func TestRealtimeFailure(t *testing.T) {
	t.Parallel()
	s, fake, id, c := relayed(t, realtimetest.Config{Answer: replies(realtimetest.Reply{Fails: "The server had an error."}, realtimetest.Reply{Text: "Yes."})})
	c.write("Hello?")
	c.send(map[string]any{"type": "response.create"})
	c.await("response.done", 1)
	c.send(map[string]any{"type": "conversation.item.truncate", "item_id": "item_none", "content_index": 0, "audio_end_ms": 5, "event_id": "mine"})
	if e := c.await("error", 1)["error"].(map[string]any); e["event_id"] != "mine" {
		t.Errorf("the client's event: %v", e)
	}
	c.send(map[string]any{"type": "response.create"})
	c.await("response.done", 2)
	list := s.stored(id, func(l []entry) bool { return len(l) == 3 })
	if f := list[1].Failure; list[1].State != "empty" || f["message"] != "The server had an error." {
		t.Errorf("failed: %+v", list[1])
	}
	if raw := fmt.Sprint(list[2].Metadata["errors"]); !strings.Contains(raw, "does not exist") {
		t.Errorf("errors %s", raw)
	}
	_ = fake
}

// The caller speaks over an answer, and the client does not say how much it has played.
func TestRealtimeInterrupted(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{}, 100)
	s, fake, id, c := relayed(t, realtimetest.Config{Answer: replies(
		realtimetest.Reply{Words: realtimetest.Paced("One two three four five six seven eight nine ten."), Hold: hold},
		realtimetest.Reply{Words: realtimetest.Paced("Sorry.")},
	)})
	c.send(map[string]any{"type": "session.update", "session": map[string]any{"type": "realtime", "audio": map[string]any{"input": map[string]any{"turn_detection": map[string]any{"type": "semantic_vad"}}}}})
	c.speak()
	c.send(map[string]any{"type": "response.create"})
	for range 5 {
		hold <- struct{}{}
	}
	c.await("response.output_audio.delta", 5)
	fake.Last().SpeechStarted()
	fake.Last().Speak()
	c.send(map[string]any{"type": "response.create"})
	c.await("response.done", 2)
	list := s.stored(id, func(l []entry) bool { return len(l) == 4 && l[1].Evidence.Method == "rate_estimate" })
	a := list[1]
	if !a.interrupted() || a.Content == a.Generated || a.Evidence.Confidence > 85 {
		t.Errorf("%+v", a)
	}
	if got := said(list); !strings.HasPrefix(got, "user: word 0\nassistant: ") || !strings.HasSuffix(got, "user: word 2\nassistant: Sorry.\n") && !strings.HasSuffix(got, "user: word 1\nassistant: Sorry.\n") {
		t.Errorf("got %s", got)
	}
}

// Late transcripts take the place that was kept for them, whatever came meanwhile.
func TestRealtimeLateTranscripts(t *testing.T) {
	t.Parallel()
	late := make(chan struct{})
	s, _, id, c := relayed(t, realtimetest.Config{Late: late, Hear: func(n int) string { return []string{"first", "", "third"}[n] }})
	for n := range 3 {
		c.speak()
		c.send(map[string]any{"type": "response.create"})
		c.await("response.done", n+1)
	}
	s.stored(id, func(l []entry) bool { return len(l) == 6 })
	if h := s.history(id); len(h.Contents) != 3 {
		t.Errorf("history has %d messages before the transcripts", len(h.Contents))
	}
	for range 3 {
		late <- struct{}{}
	}
	list := s.stored(id, func(l []entry) bool {
		return l[0].Content != "" && l[4].Content != "" && l[2].Metadata["transcript"] == "failed"
	})
	if got, want := said(list), "user: first\nassistant: Yes.\nuser: \nassistant: Yes.\nuser: third\nassistant: Yes.\n"; got != want {
		t.Errorf("got %s", got)
	}
	for i, e := range list {
		if e.TurnID != int64(i/2) {
			t.Errorf("%d: turn %d", i, e.TurnID)
		}
	}
}

// A client that plays the answers and is interrupted: what its sink has played is the truth.
func TestRealtimeHeard(t *testing.T) {
	t.Parallel()
	texts := []string{
		"The train to Bonn leaves at nine twenty from platform two, and you have to change in Cologne.",
		"Your order has been shipped this morning. It should arrive on Thursday between ten and twelve.",
		"I can offer you a table for four at seven thirty, or one for two at eight. Which do you prefer?",
		"The doctor is available on Monday and on Wednesday; on Friday the practice is closed all day long.",
		"Please keep the receipt, since you will need it if you want to return the shoes within thirty days.",
	}
	const rounds = 120
	random := rand.New(rand.NewPCG(1, 2))
	type truth struct {
		words []realtimetest.Word
		end   int64
	}
	var cases []truth
	var list []realtimetest.Reply
	for i := range rounds {
		var words []realtimetest.Word
		rate := 0.8 + 0.5*random.Float64() // voices differ
		for w := range strings.FieldsSeq(texts[i%len(texts)]) {
			ms := rate * (float64(len(w))*55 + 90) * (0.75 + 0.5*random.Float64())
			if strings.HasSuffix(w, ".") || strings.HasSuffix(w, ",") || strings.HasSuffix(w, ";") || strings.HasSuffix(w, "?") {
				ms += 250
			}
			words = append(words, realtimetest.Word{Text: w, MS: int64(ms)})
		}
		var whole int64
		for _, w := range words {
			whole += w.MS
		}
		cases = append(cases, truth{words, random.Int64N(whole)})
		list = append(list, realtimetest.Reply{Words: words, Ahead: i % 2})
	}
	s, _, id, c := relayed(t, realtimetest.Config{Answer: replies(list...)})
	good := 0
	for i, k := range cases {
		c.speak()
		c.send(map[string]any{"type": "response.create"})
		item := outputID(c.await("response.done", i+1))
		c.send(map[string]any{"type": "conversation.item.truncate", "item_id": item, "content_index": 0, "audio_end_ms": k.end})
		c.await("conversation.item.truncated", i+1)
	}
	entries := s.stored(id, func(l []entry) bool { return len(l) == 2*rounds && l[2*rounds-1].interrupted() })
	for i, k := range cases {
		var at int64
		n := 0
		for _, w := range k.words {
			if at += w.MS; at > k.end {
				break
			}
			n++
		}
		got := len(strings.Fields(entries[2*i+1].Content))
		if got-n <= 1 && n-got <= 1 {
			good++
		}
	}
	t.Logf("heard within one word: %d of %d", good, rounds)
	if good*100 < 95*rounds {
		t.Errorf("heard within one word: %d of %d", good, rounds)
	}
}

// Audio of telephones has another rate.
func TestRealtimeTelephone(t *testing.T) {
	t.Parallel()
	s, _, id, c := relayed(t, realtimetest.Config{Answer: replies(realtimetest.Reply{Words: slow("Half and half again.")})})
	c.send(map[string]any{"type": "session.update", "session": map[string]any{"audio": map[string]any{"output": map[string]any{"format": map[string]any{"type": "audio/pcmu"}}}}})
	c.await("session.updated", 1)
	c.write("Hello?")
	c.send(map[string]any{"type": "response.create"})
	item := outputID(c.await("response.done", 1))
	c.send(map[string]any{"type": "conversation.item.truncate", "item_id": item, "content_index": 0, "audio_end_ms": 1000})
	list := s.stored(id, func(l []entry) bool { return len(l) == 2 && l[1].interrupted() })
	if list[1].Content != "Half and" {
		t.Errorf("heard %q", list[1].Content)
	}
}

// Frames pass as they are, with what is not known and what is not JSON.
func TestRealtimePassesThrough(t *testing.T) {
	t.Parallel()
	s, fake, id, c := relayed(t, realtimetest.Config{})
	fake.Last().Send(map[string]any{"type": "something.new", "event_id": "e1", "x": map[string]any{"y": []any{1.5, nil, "ü"}}})
	if e := c.await("something.new", 1); e["event_id"] != "e1" || e["x"].(map[string]any)["y"].([]any)[2] != "ü" {
		t.Errorf("%v", e)
	}
	c.send(map[string]any{"type": "my.own", "a": 1})
	if !realtimetest.Wait(patience, func() bool { return slices.Contains(fake.Last().Types(), "my.own") }) {
		t.Error("an unknown event did not arrive")
	}
	big := base64.StdEncoding.EncodeToString(make([]byte, 4<<20))
	c.send(map[string]any{"type": "input_audio_buffer.append", "audio": big})
	c.send(map[string]any{"type": "input_audio_buffer.commit"})
	c.await("input_audio_buffer.committed", 1)
	s.stored(id, func(l []entry) bool { return len(l) == 1 })
}

// slow returns words that take half a second each.
func slow(text string) (out []realtimetest.Word) {
	for w := range strings.FieldsSeq(text) {
		out = append(out, realtimetest.Word{Text: w, MS: 500})
	}
	return out
}

// Frames that are broken in any way pass, and break nothing.
func TestRealtimeBrokenFrames(t *testing.T) {
	t.Parallel()
	s, fake, id, c := relayed(t, realtimetest.Config{})
	c.write("Hello?")
	c.send(map[string]any{"type": "response.create"})
	c.await("response.done", 1)
	var seeds [][]byte
	for _, e := range c.all() {
		raw, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		seeds = append(seeds, raw)
	}
	random := rand.New(rand.NewPCG(3, 4))
	const frames = 4000
	for range frames {
		f := slices.Clone(seeds[random.IntN(len(seeds))])
		for range 1 + random.IntN(4) {
			switch at := random.IntN(len(f)); random.IntN(4) {
			case 0:
				f[at] = byte(32 + random.IntN(95))
			case 1:
				f = f[:at+1]
			case 2:
				f = slices.Insert(f, at, []byte(`{"[]},:\n19"`)[random.IntN(12)])
			default:
				f = slices.Concat(f[:at], f[random.IntN(len(f)):])
			}
			if len(f) == 0 {
				f = []byte("x")
			}
		}
		f = []byte(strings.ToValidUTF8(string(f), "?"))
		if err := fake.Last().Raw(f); err != nil {
			t.Fatal(err)
		}
		if random.IntN(4) == 0 {
			if err := c.ws.Write(t.Context(), websocket.MessageText, f); err != nil {
				t.Fatal(err)
			}
		}
	}
	fake.Last().Send(map[string]any{"type": "the.end"})
	c.await("the.end", 1)
	if strings.Contains(s.log.String(), "panic") {
		t.Error("a frame made the server panic")
	}
	s.entries(id)
}
