package responses

import (
	"cmp"
	"encoding/json"
	"strings"

	"github.com/heardlog/heardlog/llmadapter"
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
	Model      string      `json:"model"`
	Output     []*Item     `json:"output"`
	Usage      *Usage      `json:"usage"`

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

// Item is an item of the output: a message, a function call or the model's reasoning.
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

	index int             // of a call among the calls
	text  strings.Builder // of the last part, or the arguments
}

// Part is a part of a message or of reasoning.
type Part struct {
	Type        string   `json:"type"`
	Text        *string  `json:"text,omitzero"`
	Refusal     *string  `json:"refusal,omitzero"`
	Annotations []string `json:"annotations,omitzero"`
	Logprobs    []string `json:"logprobs,omitzero"`
}

// Usage is how many tokens an answer took.
type Usage struct {
	Input        int64 `json:"input_tokens"`
	InputDetails struct {
		Cached int64 `json:"cached_tokens"`
	} `json:"input_tokens_details"`
	Output        int64 `json:"output_tokens"`
	OutputDetails struct {
		Reasoning int64 `json:"reasoning_tokens"`
	} `json:"output_tokens_details"`
	Total int64 `json:"total_tokens"`
}

// chunk is a chat.completion.chunk, a chat.completion or an error.
type chunk struct {
	Model   string `json:"model"`
	Choices []struct {
		Index   int     `json:"index"`
		Delta   delta   `json:"delta"`
		Message delta   `json:"message"`
		Finish  *string `json:"finish_reason"`
	} `json:"choices"`
	Usage *chatUsage `json:"usage"`
	Error *Failure   `json:"error"`
}

type delta struct {
	Content   json.RawMessage `json:"content"`
	Refusal   string          `json:"refusal"`
	Reasoning string          `json:"reasoning_content"` // DeepSeek, vLLM
	Thinking  string          `json:"reasoning"`         // OpenRouter, Ollama
	ToolCalls []callDelta     `json:"tool_calls"`
	Audio     struct {
		Transcript string `json:"transcript"`
	} `json:"audio"`
}

type callDelta struct {
	Index    *int   `json:"index"`
	ID       string `json:"id"`
	Function struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	} `json:"function"`
}

type chatUsage struct {
	Prompt        int64 `json:"prompt_tokens"`
	Completion    int64 `json:"completion_tokens"`
	Total         int64 `json:"total_tokens"`
	PromptDetails struct {
		Cached int64 `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
	CompletionDetails struct {
		Reasoning int64 `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
}

// answer builds the response to a request from what a chat completion brings.
type answer struct {
	ref  Ref
	res  Response
	emit func(kind string, e event) // nil emits nothing
	size int                        // bytes of text that are kept
	over bool                       // the last event was emitted
}

// event is what events of the stream have beside their type and number.
type event struct {
	Type     string    `json:"type"`
	Number   int       `json:"sequence_number"`
	Response *Response `json:"response,omitzero"`
	Item     *Item     `json:"item,omitzero"`
	ItemID   string    `json:"item_id,omitzero"`
	Output   *int      `json:"output_index,omitzero"`
	Content  *int      `json:"content_index,omitzero"`
	Part     *Part     `json:"part,omitzero"`
	Delta    string    `json:"delta,omitzero"`
	Text     *string   `json:"text,omitzero"`
	Refusal  *string   `json:"refusal,omitzero"`
	Name     string    `json:"name,omitzero"`
	Args     *string   `json:"arguments,omitzero"`
	Logprobs []string  `json:"logprobs,omitzero"`
	Code     string    `json:"code,omitzero"`
	Message  string    `json:"message,omitzero"`
	Param    *string   `json:"param,omitzero"`
}

// newAnswer returns the response to r before it begins. now is in Unix seconds.
func (r *Request) newAnswer(ref Ref, now int64) *answer {
	var model string
	_ = r.read("model", &model) // checked as a chat request
	return &answer{ref: ref, res: Response{
		ID: ref.ID(), Object: "response", CreatedAt: now, Status: inProgress, Model: model, Output: []*Item{},
		Instructions: r.asked("instructions", "null"), MaxOutputTokens: r.asked("max_output_tokens", "null"), Metadata: r.asked("metadata", "{}"),
		ParallelToolCalls: r.asked("parallel_tool_calls", "true"), Previous: r.asked("previous_response_id", "null"),
		Reasoning: r.asked("reasoning", `{"effort":null,"summary":null}`), Store: json.RawMessage("true"), Temperature: r.asked("temperature", "null"),
		Text: r.asked("text", `{"format":{"type":"text"}}`), ToolChoice: r.asked("tool_choice", `"auto"`), Tools: r.asked("tools", "[]"),
		TopP: r.asked("top_p", "null"), Truncation: r.asked("truncation", `"disabled"`), User: r.asked("user", "null"),
	}}
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

// read reads a chunk of a chat completion, or a whole one.
func (a *answer) read(data []byte) {
	var c chunk
	_ = json.Unmarshal(data, &c) // fields of other types are left out
	if c.Model != "" {
		a.res.Model = c.Model
	}
	a.used(c.Usage)
	if c.Error != nil {
		c.Error.Code = cmp.Or(c.Error.Code, "server_error")
		a.fail(c.Error)
		return
	}
	for i := range c.Choices {
		choice := &c.Choices[i]
		if choice.Index != 0 {
			continue
		}
		a.delta(&choice.Delta)
		a.delta(&choice.Message)
		if choice.Finish != nil {
			a.finish(*choice.Finish)
		}
	}
}

// used notes what the answer took; nil changes nothing.
func (a *answer) used(u *chatUsage) {
	if u != nil {
		a.res.Usage = &Usage{Input: u.Prompt, Output: u.Completion, Total: u.Total}
		a.res.Usage.InputDetails.Cached, a.res.Usage.OutputDetails.Reasoning = u.PromptDetails.Cached, u.CompletionDetails.Reasoning
	}
}

// finish notes why the model stopped.
func (a *answer) finish(reason string) {
	switch reason {
	case "length":
		a.res.Incomplete = &Incomplete{"max_output_tokens"}
	case "content_filter":
		a.res.Incomplete = &Incomplete{reason}
	}
}

func (a *answer) delta(d *delta) {
	a.say(reasoning, reasoningText, d.Reasoning)
	if d.Reasoning == "" { // some servers send both
		a.say(reasoning, reasoningText, d.Thinking)
	}
	// If it has both, they are the same words.
	a.say(message, outputText, cmp.Or(llmadapter.ContentText(d.Content), d.Audio.Transcript))
	a.say(message, refusal, d.Refusal)
	for i := range d.ToolCalls {
		a.call(&d.ToolCalls[i])
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

// call adds a part of a tool call. Parts of a call have the same index; a server without indexes
// sends whole calls, each with an ID of its own.
func (a *answer) call(d *callDelta) {
	n := 0
	for _, it := range a.res.Output {
		if it.Type == functionCall {
			n++
		}
	}
	index := n
	if d.Index != nil {
		index = *d.Index
	}
	it, at := a.item(functionCall, func(it *Item) bool {
		return d.Index != nil && it.index == index || d.Index == nil && (d.ID == "" || d.ID == it.CallID)
	})
	if it.Arguments == nil {
		it.index, it.ID, it.CallID, it.Name, it.Arguments = index, a.ref.call(n), d.ID, d.Function.Name, new("")
		a.send("response.output_item.added", event{Output: &at, Item: it})
	}
	args := string(d.Function.Arguments)
	if len(args) > 0 && args[0] != '{' { // some servers send an object
		args = ""
		_ = json.Unmarshal(d.Function.Arguments, &args)
	}
	if args != "" {
		a.keep(it, args)
		a.send("response.function_call_arguments.delta", event{ItemID: it.ID, Output: &at, Delta: args})
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
		it.Arguments = &text
	case n > 0:
		it.Content[n-1] = newPart(it.Content[n-1].Type, text)
		it.text.Reset()
	}
}

func newPart(kind, text string) *Part {
	switch kind {
	case refusal:
		return &Part{Type: kind, Refusal: &text}
	case outputText:
		return &Part{Type: kind, Text: &text, Annotations: []string{}, Logprobs: []string{}}
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
