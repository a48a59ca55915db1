package platform

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/heardlog/heardlog/internal/peek"
)

// Key identifies a call as a platform does: "vapi.call:5f0c…". The part before the colon is the
// name of a Source.
type Key struct {
	Text string
	// Weak means that the value identifies a caller rather than a call, so that two calls of one
	// caller become one conversation.
	Weak bool
}

// Source is a place where a call's key may stand: a header or a path into the body.
type Source struct {
	Name   string // of the key's kind, such as vapi.call; unique in all profiles
	Header string // of a request; "" = none
	Path   string // into a chat request; "" = none
	Event  string // into an event's body; "" = as Path
	Ignore string // how values begin that identify no call; "" = none
	Weak   bool
}

// event returns the path into the body of an event.
func (s Source) event() string {
	if s.Event != "" {
		return s.Event
	}
	return s.Path
}

// Profile is what is known of one platform.
type Profile struct {
	Name    string
	Sources []Source // best first
	Strip   []string // members of a chat request that no upstream sees
	// Resends means that the platform sends its whole message list each time, even one that holds
	// no answer yet.
	Resends bool
	Trust   string // how far its account of what was heard can be trusted: high, medium or low
}

// maxValue is how long a key's value may be to be kept as it is; of a longer one the hash is kept.
const maxValue = 128

// newKey returns a key. A value that names a person, is long, or holds anything but ASCII letters,
// digits and -_.:/+=@ is kept as a hash.
func newKey(s Source, value string) Key {
	plain := !s.Weak && len(value) <= maxValue
	for i := 0; i < len(value) && plain; i++ {
		c := value[i]
		plain = c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.' || c == ':' || c == '/' || c == '+' || c == '=' || c == '@'
	}
	if !plain {
		sum := sha256.Sum256([]byte(value))
		value = "sha256-" + hex.EncodeToString(sum[:16])
	}
	return Key{Text: s.Name + ":" + value, Weak: s.Weak}
}

// Profiles returns the known platforms, in the order in which a request is searched for their keys.
func Profiles() []Profile {
	return []Profile{
		{Name: "livekit", Trust: "medium", Resends: true, Sources: []Source{
			{Name: "livekit.job", Header: "X-LiveKit-Job-ID", Event: "job_id"},
			// Of LiveKit Agents 1.8 and newer it is a new one for each request.
			{Name: "livekit.session", Header: "X-LiveKit-Session-ID", Event: "session_id", Ignore: "inference_"},
			{Name: "livekit.room", Header: "X-LiveKit-Room-ID", Event: "room_id|room.sid|room.name"},
		}},
		{Name: "vapi", Trust: "medium", Resends: true, Strip: []string{"call", "customer", "phoneNumber"}, Sources: []Source{
			{Name: "vapi.call", Path: "call.id|call.callId", Event: "message.call.id|call.id|message.call.callId"},
		}},
		{Name: "elevenlabs", Trust: "high", Resends: true, Strip: []string{"elevenlabs_extra_body", "user_id"}, Sources: []Source{
			{Name: "elevenlabs.conversation", Path: "elevenlabs_extra_body.conversation_id", Event: "data.conversation_id|conversation_id"},
		}},
		{Name: "agora", Trust: "high", Resends: true, Strip: []string{
			"turn_id", "timestamp", "interruptable", "context",
			// Fields that users of Agora's engine put into llm.params for their own LLM servers.
			"channel", "app_id", "appId", "user_uid", "userId", "agent_uid", "user_name", "rtm_token",
		}, Sources: []Source{
			{Name: "agora.agent", Header: "X-Agora-Agent-Id", Event: "payload.agent_id"},
			{Name: "agora.channel", Header: "X-Agora-Customllm-Channel", Path: "context.channel|channel", Event: "payload.channel"},
		}},
		{Name: "twilio", Trust: "high", Sources: []Source{
			{Name: "twilio.call", Header: "X-Twilio-CallSid", Path: "metadata.callSid|metadata.CallSid", Event: "callSid|stop.callSid|CallSid"},
			{Name: "twilio.session", Path: "metadata.sessionId", Event: "sessionId"},
		}},
		{Name: "telnyx", Trust: "high", Sources: []Source{
			{Name: "telnyx.call", Header: "X-Telnyx-Call-Control-Id", Path: "metadata.call_control_id", Event: "call_control_id|callSid|data.payload.call_control_id|stop.call_control_id"},
		}},
		{Name: "retell", Trust: "medium", Strip: []string{"call_id"}, Sources: []Source{
			{Name: "retell.call", Header: "X-Retell-Call-Id", Path: "metadata.call_id|call_id", Event: "call_id|call.call_id"},
		}},
		{Name: "pipecat", Trust: "medium", Resends: true, Sources: []Source{
			{Name: "pipecat.session", Header: "X-Pipecat-Session-Id", Path: "metadata.session_id", Event: "session_id"},
		}},
		{Name: "openai-realtime", Trust: "medium", Sources: []Source{
			{Name: "realtime.session", Path: "metadata.realtime_session_id", Event: "session.id|session_id"},
			{Name: "realtime.call", Path: "metadata.realtime_call_id", Event: "call_id"},
		}},
		{Name: "openwebui", Trust: "low", Resends: true, Sources: []Source{
			{Name: "openwebui.chat", Header: "X-OpenWebUI-Chat-Id"},
		}},
		{Name: "litellm", Trust: "low", Sources: []Source{
			{Name: "litellm.session", Header: "X-LiteLLM-Session-Id", Path: "litellm_session_id|metadata.litellm_session_id"},
		}},
		{Name: "helicone", Trust: "low", Sources: []Source{{Name: "helicone.session", Header: "Helicone-Session-Id"}}},
		{Name: "openai", Trust: "low", Sources: []Source{
			{Name: "openai.conversation", Header: "X-Conversation-Id", Path: "metadata.conversation_id|metadata.conversationId", Event: "conversation_id"},
			{Name: "openai.thread", Header: "X-Thread-Id", Path: "metadata.thread_id|metadata.threadId"},
			{Name: "openai.chat", Header: "X-Chat-Id", Path: "metadata.chat_id|metadata.chatId"},
			{Name: "openai.session", Header: "X-Session-Id", Path: "session_id"},
			{Name: "openai.safety_identifier", Path: "safety_identifier", Weak: true},
			{Name: "openai.user", Path: "user", Weak: true},
		}},
	}
}

// ParseKey reads a key as people write it: the name of a Source, a colon and the value, as in
// "vapi.call:5f0c". It returns the key that a request with that value has, or false.
func ParseKey(s string) (Key, bool) {
	name, v, ok := strings.Cut(s, ":")
	if !ok || name == "" || v == "" || strings.IndexFunc(s, func(r rune) bool { return r <= ' ' || r >= 0x7f }) >= 0 {
		return Key{}, false
	}
	for _, p := range Profiles() {
		for _, src := range p.Sources {
			if src.Name == name {
				return newKey(src, v), true
			}
		}
	}
	return newKey(Source{Name: name}, v), true
}

// ChannelKey returns the key of an Agora channel.
func ChannelKey(channel string) string { return newKey(Source{Name: "agora.channel"}, channel).Text }

// bodyKeys returns the keys in the body of an event, by the platform's own profile. Each place that
// has a value yields one: an event has the id of a room and its name, and the agent has one of
// them.
func bodyKeys(name string, root peek.Value) []Key {
	var out []Key
	for _, p := range Profiles() {
		if p.Name != name {
			continue
		}
		for _, s := range p.Sources {
			for path := range strings.SplitSeq(s.event(), "|") {
				if v := value(root.Path(path)); path != "" && v != "" {
					out = append(out, newKey(s, v))
				}
			}
		}
	}
	return out
}

// value reads an id: a text, or a number.
func value(v peek.Value) string {
	if v.IsString() || v.IsNumber() {
		return idOf(v.Text())
	}
	return ""
}

// idOf returns an id, or "" for what clients send in the place of one: the words of their language,
// those for a chat that is not stored, and a placeholder that was not filled. Calls that share such
// a word have nothing to do with each other.
func idOf(s string) string {
	switch strings.ToLower(s) {
	case "null", "undefined", "none", "new", "local":
		return ""
	}
	if strings.Contains(s, "{{") {
		return ""
	}
	return s
}
