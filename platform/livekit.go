package platform

import (
	"cmp"
	"encoding/json"
	"strings"

	"github.com/heardlog/heardlog/internal/peek"
)

// Events of LiveKit Agents' sessions, as their objects are serialized in Python and in JavaScript:
// https://docs.livekit.io/reference/other/events/. A chat item is what the session has committed to
// its own history. Beside LiveKit's members, an event may have chat_history, the newest items of
// the history or all of them, and playback, what the audio output reported of the item's audio.

// livekitItem reads a chat item as it was committed: its text is what was heard, as far as LiveKit
// knows. The item's own ID is that of the worker's list; the ID of the answer is in extra, where
// Heardlog's packages put it.
func livekitItem(row peek.Value, _ []peek.Value, _ int, e *Evidence) bool {
	item := row.Path("item")
	if item.Path("role").Text() != "assistant" {
		return false
	}
	e.Item = name(item.Path("id"))
	if e.ItemID = livekitAnswer(item); e.ItemID != "" {
		e.Named = true
	} else if ids := first(item, "metrics.provider_request_ids|metrics.providerRequestIds").List(); len(ids) > 0 {
		e.ItemID = name(ids[len(ids)-1])
	}
	said := cmp.Or(livekitWhole(row), livekitText(item))
	if said == "" {
		return false
	}
	e.Heard = &said
	e.MadeMS = millis(first(item, "created_at|createdAt"))
	e.Said = livekitSaid(item)
	begun, over := millis(first(item, "metrics.started_speaking_at|metrics.startedSpeakingAt")), millis(first(item, "metrics.stopped_speaking_at|metrics.stoppedSpeakingAt"))
	cut := e.Cut
	switch p := row.Path("playback"); {
	case p.Path("synchronized").Bool() && len(p.Path("words").List()) == 0 && (e.Said || p.Path("aligned").Bool()):
		// LiveKit's text is better than the time: it follows the voice's word times, or is all that
		// is known.
	case p.IsObject():
		livekitPlayback(p, e)
		e.Rough = e.HeardMS != nil
	case cut && begun > 0 && over > begun && over-begun <= 1000*maxSeconds && first(item, "metrics.tts_node_ttfb|metrics.ttsNodeTtfb").Exists():
		// How long it was heard; the text may be all that was made.
		ms := over - begun
		e.HeardMS = &ms
	}
	if e.Cut = e.Cut || cut; !e.Cut {
		e.Full, e.Generated, e.Heard = true, said, nil
		return true
	}
	if e.Full = false; !row.Path("playback.aligned").Bool() {
		e.Confidence = unsureText
	}
	return true
}

// unsureText is the confidence in what a session says was heard of a cut answer. With word times of
// the voice it is nearly always right; without, it is an estimate by speaking rate, and the event
// does not say which it is.
const unsureText = 75

// livekitPlayed reads that the audio output has stopped playing an answer, which the session
// commits later.
func livekitPlayed(row peek.Value, _ []peek.Value, _ int, e *Evidence) bool {
	e.ItemID, e.Named = name(row.Path("response_id")), true
	livekitPlayback(row.Path("playback"), e)
	return e.ItemID != "" && e.HeardMS != nil
}

// livekitPlayback reads what the audio output reported: how many seconds were played, of how many
// if the voice had finished, and the words with their times.
func livekitPlayback(p peek.Value, e *Evidence) {
	position := p.Path("playback_position")
	if !number(position) || position.Float() < 0 || position.Float() > maxSeconds {
		return
	}
	ms := int64(position.Float() * 1000)
	e.HeardMS, e.Words = &ms, words(p.Path("words"))
	if at := millis(p.Path("stopped_at")); at > 0 {
		e.AtMS = at
	}
	if d := p.Path("duration"); number(d) && d.Float() <= maxSeconds {
		e.WholeMS = int64(d.Float() * 1000)
	}
	if e.Cut = p.Path("interrupted").Bool(); !e.Cut {
		e.Full = true
	}
}

// livekitAnswer returns the ID of the answer that an item is, or "".
func livekitAnswer(item peek.Value) string {
	return name(item.Path("extra.livekit.heardlog"))
}

// maxSeconds limits a time within the audio of one answer.
const maxSeconds = 24 * 60 * 60

// maxName limits the IDs that are read, in bytes.
const maxName = 256

// name reads an ID; "" for none, or for one that is too long to be one.
func name(v peek.Value) string {
	if s := v.Str(); len(s) <= maxName {
		return s
	}
	return ""
}

// livekitWhole returns all that was to be said of an event's item, if that is not an answer of the
// model and the voice's words are known; else "". Of an item that was cut, LiveKit keeps a part.
func livekitWhole(row peek.Value) string {
	if !livekitSaid(row.Path("item")) {
		return ""
	}
	return strings.TrimSpace(row.Path("playback.text").Str())
}

// livekitSaid reports whether an item is what the worker had the voice say without the model: its
// metrics have times of the voice and none of the model.
func livekitSaid(item peek.Value) bool {
	m := item.Path("metrics")
	model := first(m, "llm_node_ttft|llmNodeTtft|llm_metadata|llmMetadata").Exists()
	return !model && livekitAnswer(item) == "" && first(m, "tts_node_ttfb|ttsNodeTtfb|started_speaking_at|startedSpeakingAt").Exists()
}

// livekitText joins the texts of an item.
func livekitText(item peek.Value) string {
	content := first(item, "content|text_content|textContent")
	if content.IsString() {
		return content.Str()
	}
	var parts []string
	for _, p := range content.List() {
		if p.IsString() {
			parts = append(parts, p.Str())
		} else if s := first(p, "transcript|text").Str(); s != "" {
			parts = append(parts, s)
		}
	}
	return strings.Join(parts, "\n")
}

// livekitList returns the items of chat_history, the newest MaxRows, or else the event's own item;
// nil for none.
func livekitList(root peek.Value) []Listed {
	items := first(root, "chat_history.items|history.items").List()
	if item := root.Path("item"); len(items) == 0 && item.IsObject() {
		items = []peek.Value{item}
	}
	var out []Listed
	for _, item := range items[max(0, len(items)-MaxRows):] {
		switch kind := item.Path("type").Text(); {
		case item.Path("role").Exists() && (kind == "" || kind == "message"):
			said := livekitText(item)
			m := Listed{Item: name(item.Path("id")), Role: item.Path("role").Text(), Content: &said}
			if m.Role != "user" && m.Role != "assistant" || said == "" {
				continue
			}
			if whole := livekitWhole(root); whole != "" && item.Path("id").Text() == root.Path("item.id").Text() {
				m.Content = &whole
			}
			if id := livekitAnswer(item); id != "" {
				m.Extra = map[string]map[string]string{"livekit": {"heardlog": id}}
			}
			if item.Path("interrupted").Bool() {
				m.Metadata = map[string]any{"interrupted": true}
			}
			if m.Role == "assistant" && livekitSaid(item) {
				if m.Metadata == nil {
					m.Metadata = map[string]any{}
				}
				m.Metadata["source"] = "command"
			}
			out = append(out, m)
		case kind == "function_call":
			call := listedCall{ID: first(item, "call_id|callId").Str(), Type: "function"}
			if call.ID == "" {
				continue
			}
			call.Function.Name, call.Function.Arguments = item.Path("name").Str(), first(item, "arguments|args").Str()
			out = append(out, Listed{Role: "assistant", Calls: []listedCall{call}})
		case kind == "function_call_output":
			id, result := first(item, "call_id|callId").Str(), item.Path("output").Str()
			if id == "" {
				continue
			}
			out = append(out, Listed{Role: "tool", Content: &result, CallID: id})
		}
	}
	return out
}

// Listed is a message of a platform's own history, as a chat request has it.
type Listed struct {
	Item    string       `json:"-"` // the platform's ID of it
	Role    string       `json:"role"`
	Content *string      `json:"content"`
	Calls   []listedCall `json:"tool_calls,omitempty"`
	CallID  string       `json:"tool_call_id,omitempty"`
	// Metadata has, of an assistant message, interrupted if the caller cut it, and source if it is
	// not the model's.
	Metadata map[string]any               `json:"metadata,omitempty"`
	Extra    map[string]map[string]string `json:"extra_content,omitempty"`
}

type listedCall struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

// Request returns a list as the body of a chat request.
func Request(list []Listed) ([]byte, error) {
	return json.Marshal(map[string][]Listed{"messages": list})
}
