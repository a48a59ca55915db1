package fake

import (
	"encoding/json"
	"regexp"
	"strings"
)

// known are the answers of the fake: the first whose words are in the question is given.
var known = []struct{ words, answer string }{
	{"change my booking", "You can change it until six. There is a fee of twenty-five euros unless you travel before noon, then it is free."},
	{"before noon", "Before noon the change is free. Shall I look for an early train?"},
	{"the early one", "I have booked the train at eight, by the window. It costs you nothing, since it leaves before noon."},
	{"train", "The train leaves at nine from platform two. Shall I book a seat for you?"},
}

// answerTo returns an answer that fits the last question. It depends on nothing but the prompt.
func answerTo(in *request) string {
	last := -1
	for i, m := range in.Messages {
		if m.Role == "user" {
			last = i
		}
	}
	if last < 0 {
		return "Hello, how can I help?"
	}
	question := in.Messages[last].text()
	if _, asked, ok := strings.Cut(question, "</memory>"); ok { // what Heardlog put before it
		question = strings.TrimSpace(asked)
	}
	lower := strings.ToLower(question)
	if strings.Contains(lower, "did you tell me") || strings.Contains(lower, "did you say") {
		return review(in.Messages)
	}
	for _, k := range known {
		if strings.Contains(lower, k.words) {
			return k.answer
		}
	}
	return "You said: " + question
}

// review returns what the prompt has the model say last: in this call, or else in an earlier one.
func review(prompt []message) string {
	for i := len(prompt) - 1; i >= 0; i-- {
		said := strings.TrimSpace(prompt[i].text())
		if prompt[i].Role != "assistant" || said == "" {
			continue
		}
		if answer := stopped(said); answer != "" {
			return answer
		}
		return "I told you: “" + said + "”"
	}
	for _, m := range prompt {
		for _, line := range remembered.FindAllStringSubmatch(m.text(), -1) {
			if answer := stopped(line[1]); answer != "" {
				return "That was in your last call. " + answer
			}
		}
	}
	return "I have told you nothing yet."
}

// remembered is a line of Heardlog's memory of earlier calls in which the agent speaks.
var remembered = regexp.MustCompile(`(?m)agent, heard[^:]*: (.*?)"?$`)

// stopped returns where an answer was stopped and what was to come, if it is the beginning of a
// known one, and else nothing.
func stopped(said string) string {
	for _, k := range known {
		if rest, ok := strings.CutPrefix(k.answer, said); ok && rest != "" {
			sentence := said[strings.LastIndexAny(said, ".?!")+1:]
			return "You stopped me after “" + strings.TrimSpace(sentence) + "”. I was about to say: “" + strings.TrimSpace(rest) + "”"
		}
	}
	return ""
}

// message is one message of a prompt.
type message struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
}

// text returns the message's text, its parts joined.
func (m message) text() string {
	var text string
	if json.Unmarshal(m.Content, &text) != nil {
		var parts []struct{ Text string }
		_ = json.Unmarshal(m.Content, &parts)
		for _, p := range parts {
			text += p.Text
		}
	}
	return text
}
