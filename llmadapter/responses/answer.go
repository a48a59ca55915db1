package responses

import (
	"cmp"
	"encoding/json"
	"strings"

	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/llmadapter"
	"github.com/heardlog/heardlog/memory"
)

// Types of items and of their parts.
const (
	message      = "message"
	reasoning    = "reasoning"
	functionCall = "function_call"

	outputText    = "output_text"
	refusal       = "refusal"
	reasoningText = "reasoning_text"
)

// States of a response and of its items.
const (
	inProgress = "in_progress"
	completed  = "completed"
	incomplete = "incomplete"
	failed     = "failed"
)

// Response is the answer to a request, in the form of the Responses API. It repeats the settings of
// the request as the client sent them.
type Response struct {
	ID         string      `json:"id"`
	Object     string      `json:"object"`
	CreatedAt  int64       `json:"created_at"` // Unix seconds
	Status     string      `json:"status"`
	Background bool        `json:"background"`
	Error      *Failure    `json:"error"`
	Incomplete *Incomplete `json:"incomplete_details"`
	// Conversation is what the request names, or null.
	Conversation *InConversation `json:"conversation,omitzero"`
	Model        string          `json:"model"`
	Output       []*Item         `json:"output"`
	Usage        *Usage          `json:"usage"`

	Instructions      json.RawMessage `json:"instructions"`
	MaxOutputTokens   json.RawMessage `json:"max_output_tokens"`
	Metadata          json.RawMessage `json:"metadata"`
	ParallelToolCalls json.RawMessage `json:"parallel_tool_calls"`
	Previous          json.RawMessage `json:"previous_response_id"`
	Reasoning         json.RawMessage `json:"reasoning"`
	Store             json.RawMessage `json:"store"`
	Temperature       json.RawMessage `json:"temperature"`
	Text              json.RawMessage `json:"text"`
	ToolChoice        json.RawMessage `json:"tool_choice"`
	Tools             json.RawMessage `json:"tools"`
	TopP              json.RawMessage `json:"top_p"`
	Truncation        json.RawMessage `json:"truncation"`
	User              json.RawMessage `json:"user"`
}

// InConversation names a conversation.
type InConversation struct {
	ID string `json:"id"`
}

// Failure is why a response failed.
type Failure struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// Incomplete is why a response has not all that it would have: max_output_tokens, content_filter or
// interrupted.
type Incomplete struct {
	Reason string `json:"reason"`
}

// Item is an item of the output: a message, a function call or the model's reasoning. Lists also
// have the results of tools.
type Item struct {
	ID        string   `json:"id"`
	Type      string   `json:"type"`
	Status    string   `json:"status,omitzero"`
	Role      string   `json:"role,omitzero"`
	Content   []*Part  `json:"content,omitzero"`
	Summary   []string `json:"summary,omitzero"`
	CallID    string   `json:"call_id,omitzero"`
	Name      string   `json:"name,omitzero"`
	Arguments *string  `json:"arguments,omitzero"`
	Output    *string  `json:"output,omitzero"` // of a tool

	index       int               // of a call among the calls
	text        strings.Builder   // of the last part, or the arguments
	annotations []json.RawMessage // of the last part
}

// Part is a part of a message or of reasoning.
type Part struct {
	Type        string            `json:"type"`
	Text        *string           `json:"text,omitzero"`
	Refusal     *string           `json:"refusal,omitzero"`
	ImageURL    string            `json:"image_url,omitzero"`
	Detail      string            `json:"detail,omitzero"` // of a picture
	Annotations []json.RawMessage `json:"annotations,omitzero"`
	Logprobs    []string          `json:"logprobs,omitzero"`
}

// Usage is how many tokens an answer took.
type Usage struct {
	Input        int64 `json:"input_tokens"`
	InputDetails struct {
		Cached  int64 `json:"cached_tokens"`
		Written int64 `json:"cache_write_tokens"`
	} `json:"input_tokens_details"`
	Output        int64 `json:"output_tokens"`
	OutputDetails struct {
		Reasoning int64 `json:"reasoning_tokens"`
	} `json:"output_tokens_details"`
	Total int64 `json:"total_tokens"`
}

type chatUsage struct {
	Prompt        int64 `json:"prompt_tokens"`
	Completion    int64 `json:"completion_tokens"`
	Total         int64 `json:"total_tokens"`
	PromptDetails struct {
		Cached  int64 `json:"cached_tokens"`
		Written int64 `json:"cache_write_tokens"`
	} `json:"prompt_tokens_details"`
	CompletionDetails struct {
		Reasoning int64 `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
}

// answer builds the response to a request from what a chat completion brings.
type answer struct {
	ref  Ref
	res  Response
	rec  llmadapter.Record          // what was read of the chat completion
	emit func(kind string, e event) // nil emits nothing
	size int                        // bytes of text that are kept
	over bool                       // the last event was emitted
}

// event is what events of the stream have beside their type and number.
type event struct {
	Type       string          `json:"type"`
	Number     int             `json:"sequence_number"`
	Response   *Response       `json:"response,omitzero"`
	Item       *Item           `json:"item,omitzero"`
	ItemID     string          `json:"item_id,omitzero"`
	Output     *int            `json:"output_index,omitzero"`
	Content    *int            `json:"content_index,omitzero"`
	Part       *Part           `json:"part,omitzero"`
	Delta      string          `json:"delta,omitzero"`
	Text       *string         `json:"text,omitzero"`
	Refusal    *string         `json:"refusal,omitzero"`
	Name       string          `json:"name,omitzero"`
	Args       *string         `json:"arguments,omitzero"`
	Logprobs   []string        `json:"logprobs,omitzero"`
	Annotation json.RawMessage `json:"annotation,omitzero"`
	Nth        *int            `json:"annotation_index,omitzero"`
	Code       string          `json:"code,omitzero"`
	Message    string          `json:"message,omitzero"`
	Param      *string         `json:"param,omitzero"`
}

// newAnswer returns the response to r before it begins. It is not stored if ref has no Seq. now is
// in Unix seconds.
func (r *Request) newAnswer(ref Ref, now int64) *answer {
	var model string
	_ = r.read("model", &model) // checked as a chat request
	a := &answer{ref: ref, res: Response{
		ID: ref.ID(), Object: "response", CreatedAt: now, Status: inProgress, Model: model, Output: []*Item{},
		Instructions: r.asked("instructions", "null"), MaxOutputTokens: r.asked("max_output_tokens", "null"), Metadata: r.asked("metadata", "{}"),
		ParallelToolCalls: r.asked("parallel_tool_calls", "true"), Previous: r.asked("previous_response_id", "null"),
		Reasoning: r.asked("reasoning", `{"effort":null,"summary":null}`), Store: json.RawMessage("true"), Temperature: r.asked("temperature", "null"),
		Text: r.asked("text", `{"format":{"type":"text"}}`), ToolChoice: r.asked("tool_choice", `"auto"`), Tools: r.asked("tools", "[]"),
		TopP: r.asked("top_p", "null"), Truncation: r.asked("truncation", `"disabled"`), User: r.asked("user", "null"),
	}}
	if r.Conversation != "" {
		a.res.Conversation = &InConversation{r.Conversation}
	}
	if ref.Seq == 0 {
		a.res.Store = json.RawMessage("false")
	}
	a.rec.Changed = a.changed
	return a
}

// asked returns a member of the request, or what it means to leave it out.
func (r *Request) asked(name, otherwise string) json.RawMessage {
	if v, ok := r.members[name]; ok {
		return json.RawMessage(v)
	}
	return json.RawMessage(otherwise)
}

// begin emits what every stream begins with.
func (a *answer) begin() {
	if a.emit != nil {
		a.emit("response.created", event{Response: &a.res})
		a.emit("response.in_progress", event{Response: &a.res})
	}
}

// read reads the data of an event of a chat completion, [DONE] included.
func (a *answer) read(data []byte) {
	a.rec.Chunk(data)
	a.head()
	if a.rec.Done {
		a.end()
	}
}

// readWhole reads a chat completion in one piece.
func (a *answer) readWhole(body []byte) {
	a.rec.Unary(body)
	a.head()
}

// head notes what was read beside the output.
func (a *answer) head() {
	a.res.Model = cmp.Or(a.rec.Model, a.res.Model)
	if len(a.rec.Error) > 0 {
		said, code := llmadapter.ErrorText(a.rec.Error) // without secrets
		a.fail(&Failure{Code: cmp.Or(code, "server_error"), Message: said})
		return
	}
	a.finish(a.rec.Finish)
}

// changed adds a piece of the chat completion to the output.
func (a *answer) changed(c llmadapter.Change) {
	switch c.Kind {
	case llmadapter.Words:
		a.say(message, outputText, c.Text)
	case llmadapter.Refusal:
		a.say(message, refusal, c.Text)
	case llmadapter.Thought:
		a.say(reasoning, reasoningText, c.Text)
	case llmadapter.Retracted:
		a.retract()
	case llmadapter.CallBegun:
		a.call(c.Call)
	case llmadapter.CallArguments:
		it, at := a.item(functionCall, func(it *Item) bool { return it.index == c.Call })
		a.keep(it, c.Text)
		a.send("response.function_call_arguments.delta", event{ItemID: it.ID, Output: &at, Delta: c.Text})
	case llmadapter.Annotation:
		a.annotate(json.RawMessage(c.Text))
	}
}

// used notes what the answer took.
func (a *answer) used(usage []byte) {
	var u chatUsage
	if len(usage) == 0 || json.Unmarshal(usage, &u) != nil {
		return
	}
	a.res.Usage = &Usage{Input: u.Prompt, Output: u.Completion, Total: u.Total}
	a.res.Usage.InputDetails.Cached, a.res.Usage.InputDetails.Written = u.PromptDetails.Cached, u.PromptDetails.Written
	a.res.Usage.OutputDetails.Reasoning = u.CompletionDetails.Reasoning
}

// finish notes why the model stopped.
func (a *answer) finish(reason string) {
	switch {
	case !memory.Limited(reason):
	case reason == "length", reason == "max_tokens":
		a.res.Incomplete = &Incomplete{"max_output_tokens"}
	default:
		a.res.Incomplete = &Incomplete{text.Clip(reason, 64)}
	}
}

// say adds text to the message or the reasoning, as a part of a kind.
func (a *answer) say(item, kind, text string) {
	if text == "" {
		return
	}
	it, at := a.item(item, func(*Item) bool { return true })
	if n := len(it.Content); n == 0 || it.Content[n-1].Type != kind {
		it.close()
		it.Content = append(it.Content, newPart(kind, ""))
		a.send("response.content_part.added", event{ItemID: it.ID, Output: &at, Content: new(len(it.Content) - 1), Part: newPart(kind, "")})
	}
	a.keep(it, text)
	e := event{ItemID: it.ID, Output: &at, Content: new(len(it.Content) - 1), Delta: text}
	if kind == outputText {
		e.Logprobs = []string{}
	}
	a.send("response."+kind+".delta", e)
}

// call adds a tool call.
func (a *answer) call(n int) {
	it, at := a.item(functionCall, func(it *Item) bool { return it.index == n })
	it.index, it.ID, it.Arguments = n, a.ref.call(n), new("")
	it.CallID, it.Name = a.rec.Call(n)
	a.send("response.output_item.added", event{Output: &at, Item: it})
}

// retract moves the words so far to the reasoning: they turned out to be thoughts. A stream has
// sent them already; what ends it has them in their place.
func (a *answer) retract() {
	for _, it := range a.res.Output {
		if it.Type == message && len(it.Content) > 0 {
			words := it.text.String()
			it.text.Reset()
			to, _ := a.item(reasoning, func(*Item) bool { return true })
			if len(to.Content) == 0 {
				to.Content = append(to.Content, newPart(reasoningText, ""))
			}
			to.text.WriteString(words)
		}
	}
}

// annotate adds an annotation of a chat completion to the last text. There, what it is stands in a
// member with the name of its type; in a response, beside the type.
func (a *answer) annotate(raw json.RawMessage) {
	var in map[string]json.RawMessage
	if json.Unmarshal(raw, &in) != nil {
		return
	}
	var kind string
	_ = json.Unmarshal(in["type"], &kind) // anything but a string names none
	var inner map[string]json.RawMessage
	if json.Unmarshal(in[kind], &inner) == nil && inner != nil {
		inner["type"] = in["type"]
		raw = json.RawMessage(encode(inner))
	}
	it, at := a.item(message, func(*Item) bool { return true })
	n := len(it.annotations)
	it.annotations = append(it.annotations, raw)
	if len(it.Content) > 0 {
		a.send("response.output_text.annotation.added", event{ItemID: it.ID, Output: &at, Content: new(len(it.Content) - 1), Annotation: raw, Nth: &n})
	}
}

// item returns the item of a type that is meant, and its index. It adds one if there is none.
func (a *answer) item(kind string, meant func(*Item) bool) (*Item, int) {
	for at, it := range a.res.Output {
		if it.Type == kind && meant(it) {
			return it, at
		}
	}
	it, at := &Item{Type: kind, Status: inProgress}, len(a.res.Output)
	a.res.Output = append(a.res.Output, it)
	switch kind {
	case message:
		it.ID, it.Role, it.Content = a.ref.id("msg"), "assistant", []*Part{}
	case reasoning:
		it.ID, it.Content, it.Summary = a.ref.id("rs"), []*Part{}, []string{}
	default: // call knows its ID
		return it, at
	}
	a.send("response.output_item.added", event{Output: &at, Item: it})
	return it, at
}

// keep adds text to an item. As much is kept as the memory keeps of an answer.
func (a *answer) keep(it *Item, text string) {
	text = text[:min(len(text), llmadapter.MaxAnswer-a.size)]
	a.size += len(text)
	it.text.WriteString(text)
}

// close puts the text into the last part, or into the arguments of a call.
func (it *Item) close() {
	text := strings.ToValidUTF8(it.text.String(), "")
	switch n := len(it.Content); {
	case it.Type == functionCall:
		if text == "" {
			text = "{}"
		}
		it.Arguments = &text
	case n > 0:
		p := newPart(it.Content[n-1].Type, text)
		if p.Type == outputText && len(it.annotations) > 0 {
			p.Annotations, it.annotations = it.annotations, nil
		}
		it.Content[n-1] = p
		it.text.Reset()
	}
}

func newPart(kind, text string) *Part {
	switch kind {
	case refusal:
		return &Part{Type: kind, Refusal: &text}
	case outputText:
		return &Part{Type: kind, Text: &text, Annotations: []json.RawMessage{}, Logprobs: []string{}}
	}
	return &Part{Type: kind, Text: &text}
}

// send emits an event, if there is a stream.
func (a *answer) send(kind string, e event) {
	if a.emit != nil {
		a.emit(kind, e)
	}
}

// end ends the response, which is complete unless finish says otherwise. A response that has
// ended already stays as it is.
func (a *answer) end() {
	if a.over {
		return
	}
	a.say(message, outputText, a.rec.Rest())
	a.used(a.rec.Usage)
	if len(a.res.Output) == 0 { // clients expect a message
		it, _ := a.item(message, nil)
		it.Content = []*Part{newPart(outputText, "")}
	}
	a.res.Status = completed
	if a.res.Incomplete != nil {
		a.res.Status = incomplete
	}
	a.closeItems(a.res.Status)
	if a.res.Usage == nil {
		a.res.Usage = &Usage{} // some clients require it
	}
	a.over = true
	a.send("response."+a.res.Status, event{Response: &a.res})
}

// fail ends the response with an error.
func (a *answer) fail(why *Failure) {
	if a.over {
		return
	}
	a.closeItems(incomplete)
	a.res.Status, a.res.Error, a.over = failed, why, true
	a.send("error", event{Code: why.Code, Message: why.Message})
	a.send("response.failed", event{Response: &a.res})
}

// closeItems ends all items.
func (a *answer) closeItems(status string) {
	for at, it := range a.res.Output {
		it.close()
		it.Status = status
		if it.Type == functionCall {
			a.send("response.function_call_arguments.done", event{ItemID: it.ID, Output: &at, Name: it.Name, Args: it.Arguments})
		}
		for i, p := range it.Content {
			e := event{ItemID: it.ID, Output: &at, Content: &i, Text: p.Text, Refusal: p.Refusal}
			if p.Type == outputText {
				e.Logprobs = []string{}
			}
			a.send("response."+p.Type+".done", e)
			a.send("response.content_part.done", event{ItemID: it.ID, Output: &at, Content: &i, Part: p})
		}
		a.send("response.output_item.done", event{Output: &at, Item: it})
	}
}
