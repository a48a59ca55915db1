package simulate

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strconv"
)

// entry is a message of the list that a platform keeps and re-sends.
type entry struct {
	role, content string
	toolCalls     json.RawMessage
	toolCallID    string
	turn          int64 // the platform's own count
	atMS          int64
	source        string // asr, llm, greeting or command
	original      string // what the model said, if not all of it was heard
}

// platform describes how a voice platform calls a custom LLM.
type platform struct {
	vendor string // llm.vendor of the join
	// key is how the server finds the call (see platform.Profiles): the kind of key, a colon and
	// what comes before the call's id. Empty for Agora, whose join names the channel anyway.
	key string
	// request adds the platform's own members to a body, and its headers.
	request func(p *player, body map[string]any, h http.Header)
	// message adds the platform's own members to a message of the list.
	message func(e entry, m map[string]any)
	// private are members of the body that the LLM must not see.
	private []string
	// opening is a first chunk of each answer that is meant for the platform and must reach it.
	opening string
	// merges joins questions without an answer into one message.
	merges bool
}

// platforms returns all platforms that can be simulated, by name.
func platforms() map[string]platform {
	return map[string]platform{
		"openai":     {key: "openai.conversation:", request: openAI},
		"livekit":    {key: "livekit.job:AJ_", request: liveKit},
		"pipecat":    {key: "pipecat.session:", request: pipecat},
		"vapi":       {key: "vapi.call:", request: vapi, private: []string{"call", "phoneNumber", "customer"}},
		"elevenlabs": {key: "elevenlabs.conversation:", request: elevenLabs, private: []string{"elevenlabs_extra_body", "user_id"}},
		"twilio":     {key: "twilio.call:", request: twilio},
		"retell":     {key: "retell.call:", request: retell},
		"agora":      {vendor: "custom", request: agora, message: agoraMessage, opening: agoraOpening, merges: true},
	}
}

// Platforms returns the names of the platforms that can be simulated, sorted.
func Platforms() []string { return slices.Sorted(maps.Keys(platforms())) }

// openAI is an OpenAI client that keeps its own list. Its retries have the idempotency key of the
// first try.
func openAI(p *player, body map[string]any, h http.Header) {
	body["metadata"] = map[string]any{"conversation_id": p.run}
	h.Set("Idempotency-Key", p.run+"-"+strconv.Itoa(p.questions))
}

// liveKit sends the headers of LiveKit's plugins in a job. The session's ID is a new one each time.
func liveKit(p *player, body map[string]any, h http.Header) {
	usage(body)
	for name, value := range map[string]string{"Room-ID": "RM_", "Job-ID": "AJ_", "Agent-ID": "A_"} {
		h.Set("X-LiveKit-"+name, value+p.run)
	}
	h.Set("X-LiveKit-Session-ID", "inference_"+p.run+strconv.Itoa(p.questions))
}

// pipecat sends a header that its users set in default_headers.
func pipecat(p *player, body map[string]any, h http.Header) {
	usage(body)
	h.Set("X-Pipecat-Session-Id", p.run)
}

func usage(body map[string]any) {
	if body["stream"] == true {
		body["stream_options"] = map[string]any{"include_usage": true}
	}
}

// vapi sends what Vapi's metadataSendMode "variable", the default, adds.
func vapi(p *player, body map[string]any, _ http.Header) {
	number := map[string]any{"number": "+15550100"}
	body["temperature"], body["max_tokens"] = 0.4, 250
	body["metadata"] = map[string]any{"ticket": "17"}
	body["call"] = map[string]any{"id": p.run, "type": "inboundPhoneCall", "customer": number, "assistant": map[string]any{"server": map[string]any{"secret": "vapi-secret"}}}
	body["phoneNumber"], body["customer"] = map[string]any{"id": "pn-1", "number": "+15550199"}, number
}

func elevenLabs(p *player, body map[string]any, _ http.Header) {
	body["user_id"] = "user-" + p.run
	body["elevenlabs_extra_body"] = map[string]any{"conversation_id": p.run}
}

// twilio is an application behind Twilio's ConversationRelay. It learns of barge-ins from events,
// and asks the model with an OpenAI client.
func twilio(p *player, body map[string]any, _ http.Header) {
	body["metadata"] = map[string]any{"callSid": p.run}
}

// retell is an application behind Retell's LLM socket.
func retell(p *player, body map[string]any, _ http.Header) {
	body["metadata"] = map[string]any{"call_id": p.run}
}

// agora sends what Agora's engine sends to an LLM of vendor "custom".
func agora(p *player, body map[string]any, _ http.Header) {
	body["turn_id"], body["timestamp"], body["interruptable"] = p.turn, p.now().UnixMilli(), true
	body["context"] = map[string]any{"presence": map[string]any{"42": map[string]any{"selection": "ticket 17"}}}
	body["channel"], body["user_uid"] = "room-"+p.run, "42"
}

// agoraMessage adds Agora's extensions of a message.
func agoraMessage(e entry, m map[string]any) {
	if e.role == "tool" {
		return
	}
	meta := map[string]any{"source": e.source}
	if e.role == "user" {
		meta["user"] = "42"
	}
	if e.original != "" {
		meta["interrupted"], meta["original"], meta["interrupt_timestamp"] = true, e.original, e.atMS+1000
	}
	m["turn_id"], m["timestamp"], m["metadata"] = e.turn, e.atMS, meta
}

// agoraOpening is a first chunk that controls Agora's engine. It is not content, and must reach it.
const agoraOpening = `{"id":"meta-1","object":"chat.completion.custom_metadata","choices":[],"metadata":{"interruptable":true}}`
