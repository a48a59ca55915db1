package check_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/heardlog/heardlog/longterm/check"
	"github.com/heardlog/heardlog/memory"
)

// scripts are calls, each with its language-independent course: lines of "A:" and "C:", where
// {name} is a phrase of a set, "A|" is an answer that was cut at "|", and "=" names the findings
// that the call must have. A call without "=" must have none.
var scripts = []struct{ name, want, course string }{
	{"repeated after taking note", "repeated", "A: {fact}\nC: {ack}\nA: {fact}"},
	{"repeated when cut", "repeated", "A: {fact} | {more}\nC: {topic}\nA: {fact} {answer}"},
	{"repeated in other words", "repeated", "A: {fact}\nC: {topic}\nA: {answer}\nC: {ack}\nA: {fact2}"},
	{"repeated with something new", "repeated", "A: {fact}\nC: {topic}\nA: {answer} {fact}"},
	{"asked to repeat", "", "A: {fact}\nC: {again}\nA: {fact}"},
	{"asked about it", "", "A: {fact}\nC: {about}\nA: {fact}"},
	{"asked in general", "", "A: {fact}\nC: {vague}\nA: {fact} {more}"},
	{"wants to write", "", "A: {fact}\nC: {hold}\nA: {fact}"},
	{"another number", "", "A: {fact}\nC: {ack}\nA: {diff}"},
	{"something else", "", "A: {fact}\nC: {ack}\nA: {more}\nC: {topic}\nA: {answer}"},
	{"was not heard", "", "A: | {fact}\nC: {topic}\nA: {answer} {fact}"},
	{"agent asks again", "asked_again", "A: {ask}\nC: {reply}\nA: {ask2}\nC: {reply2}\nA: {ask}"},
	{"agent asks another again", "asked_again", "A: {ask2}\nC: {reply2}\nA: {ask}\nC: {reply}\nA: {ask2}"},
	{"no answer", "", "A: {ask}\nC: {noreply}\nA: {ask}"},
	{"not understood", "", "A: {ask}\nC: {again}\nA: {ask}"},
	{"agent has not understood", "", "A: {ask}\nC: {reply}\nA: {misheard} {ask}"},
	{"a second order", "", "A: {ask}\nC: {reply}\nA: {ask2}\nC: {reply2}\nA: {answer}\nC: {another}\nA: {ask}"},
	{"routine", "", "C: {topic}\nA: {answer} {routine}\nC: {q}\nA: {qheard} {qlost} {routine}"},
	{"question was not heard", "", "A: {heard} | {ask}\nC: {ack}\nA: {ask}"},
	{"caller asks again, answer cut", "asked_again", "C: {q}\nA: {qheard} | {qlost}\nC: {q}"},
	{"caller asks again", "asked_again", "C: {q}\nA: {qheard} {qlost}\nC: {q}"},
	{"caller asks something like it", "", "C: {q}\nA: {qheard} {qlost}\nC: {qother}"},
	{"caller repeats for the agent", "", "C: {q}\nA: {misheard}\nC: {q}"},
	{"refers to what was cut", "unheard", "A: {heard} | {lost}\nC: {topic}\nA: {answer} {refer}"},
	{"refers at once", "unheard", "A: {heard} | {lost}\nC: {ack}\nA: {refer}"},
	{"refers to what was heard", "", "A: {heard}\nC: {topic}\nA: {answer} {told}"},
	{"refers to what was heard of a cut", "", "A: {heard} | {lost}\nC: {topic}\nA: {answer} {told}"},
	{"says the rest", "", "A: {heard} | {lost}\nC: {topic}\nA: {answer} {retell}"},
	{"refers, and all was heard", "", "A: {heard} {lost}\nC: {topic}\nA: {answer} {refer}"},
}

// english are calls of their own, in which the rules were wrong at first or may be.
var english = []struct{ name, want, course string }{
	{"menu again", "repeated", "A: You can choose between pasta with pesto, risotto with mushrooms and a green salad. | The desserts are\nC: I'm allergic to nuts\nA: You can choose between pasta with pesto, risotto with mushrooms and a green salad. Which of these would you like?"},
	{"route", "", "A: The train from Munich to Berlin leaves at nine from platform four.\nC: And on the way back?\nA: The train from Berlin to Munich leaves at nine from platform four."},
	{"before and after", "", "A: You can pick the parcel up before nine at the counter in Main Street.\nC: okay\nA: You can pick the parcel up after nine at the counter in Main Street."},
	{"not", "", "A: You can cancel the booking free of charge until Friday.\nC: great\nA: Sorry, you can't cancel the booking free of charge until Friday."},
	{"sizes", "", "A: The red shirt is available in small for twenty euros.\nC: okay\nA: The red shirt is available in large for twenty euros."},
	{"order number", "", "A: Please tell me your order number so that I can look up the delivery.\nC: My parcel has not arrived.\nA: I'm sorry to hear that. Please tell me your order number so that I can look up the delivery."},
	{"no slots", "", "A: I could not find any free appointments on that day. How about Monday?\nC: Monday is bad, maybe Tuesday.\nA: I could not find any free appointments on that day. How about Wednesday?"},
	{"refusal", "", "C: What is the capital of France?\nA: I can only answer questions about your electricity contract.\nC: Tell me a joke.\nA: I can only answer questions about your electricity contract."},
	{"recap", "", "A: Your appointment with Doctor Miller is on Tuesday at three.\nC: Great, thanks.\nA: To confirm, your appointment with Doctor Miller is on Tuesday at three."},
	{"goodbye", "", "A: Your appointment with Doctor Miller is on Tuesday at three.\nC: Thanks.\nA: Your appointment with Doctor Miller is on Tuesday at three. Have a nice day!"},
	{"confirmed", "", "A: Your appointment with Doctor Miller is on Tuesday at three.\nC: Tuesday at three, great.\nA: Yes. Your appointment with Doctor Miller is on Tuesday at three."},
	{"time in other words", "", "A: Your appointment with Doctor Miller is on Tuesday at three.\nC: What time should I arrive?\nA: Your appointment with Doctor Miller is on Tuesday at three. Ten minutes earlier is enough."},
	{"name twice", "asked_again", "A: May I have your name?\nC: Anna Miller.\nA: Thank you, Anna. What's your email address?\nC: anna at example dot com\nA: And what is your name?"},
	{"name for two", "", "A: What is your name?\nC: Anna Miller.\nA: Thanks Anna. Is it for two people?\nC: Yes, and my husband also needs a badge.\nA: What is your name?"},
	{"wrong number", "", "A: What is your order number?\nC: Five five one two.\nA: There is no order with five five one two. What is your order number?"},
	{"caller asks about two things", "", "C: How much does it cost?\nA: The small one costs five euros.\nC: And the big one, is it blue?\nA: Yes, it is blue.\nC: How much does it cost?"},
	{"fully booked", "", "A: Which day would you like?\nC: Friday.\nA: Friday is fully booked.\nC: Oh, what a pity.\nA: Which day would you like?"},
	{"can you hear me", "", "C: Can you hear me?\nA: Yes, welcome to the opera box office.\nC: Can you hear me?"},
	{"caller insists", "asked_again", "C: Can I return the shoes without a receipt?\nA: You have thirty days for returns. | Without a receipt we give you a voucher.\nC: But can I return the shoes without a receipt?"},
	{"demonstrative", "unheard", "A: Your room is ready. | There is a deposit of fifty euros, payable by card at the reception.\nC: perfect, thank you\nA: For that deposit, just ask my colleague."},
	{"demonstrative of a heard word", "", "A: Your room is ready, with a deposit. | The deposit is fifty euros.\nC: perfect\nA: For that deposit, just ask my colleague."},
	{"demonstrative of a time", "", "A: We can come on Friday. | The technician needs the week after.\nC: okay\nA: Would this week suit you?"},
	{"already told", "unheard", "A: I looked it up. | Your tracking code is K nine, and the parcel is in Bremen.\nC: where is my parcel\nA: I already told you, it is in Bremen."},
	{"goes on", "", "A: I looked it up. | Your parcel is in Bremen.\nC: hello\nA: As I was saying, your parcel is in Bremen."},
	{"refers to the caller's words", "", "A: Hello. | Our terrace is open.\nC: I'd like to sit on the terrace\nA: As I said, the terrace."},
}

// phrasesOf reads the phrases of the sets, by language and set.
func phrasesOf(t *testing.T) map[string]map[string]string {
	t.Helper()
	b, err := os.ReadFile("testdata/phrases.txt")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]map[string]string{}
	at := ""
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSpace(line)
		if name, ok := strings.CutPrefix(line, "== "); ok {
			at = name
			out[at] = map[string]string{}
		} else if key, text, ok := strings.Cut(line, ": "); ok && at != "" {
			out[at][key] = text
		}
	}
	return out
}

// callOf returns the messages of a course, nil if the set lacks one of its phrases. Each answer
// takes eight seconds, and begins half a second after the caller's words.
func callOf(course string, phrases map[string]string) (msgs []memory.Message) {
	turn, now := int64(0), int64(1_780_000_000_000)
	for line := range strings.Lines(course) {
		line = strings.TrimSpace(line)
		for strings.Contains(line, "{") {
			from, to := strings.Index(line, "{"), strings.Index(line, "}")
			text, ok := phrases[line[from+1:to]]
			if !ok {
				return nil
			}
			line = line[:from] + text + line[to+1:]
		}
		m := memory.Message{Seq: int64(len(msgs) + 1), Role: memory.User, Source: memory.SourceASR, Timestamp: now, TurnID: turn, Content: line[3:]}
		if line[0] == 'A' {
			m.Role, m.Source, m.Method = memory.Assistant, memory.SourceLLM, memory.AssumedFull
			m.Timings = &memory.Timings{StartMS: now + 100, FirstTokenMS: 400}
			if before, _, cut := strings.Cut(m.Content, "|"); cut {
				m.Generated = strings.Replace(m.Content, "| ", "", 1)
				m.Content, m.Interrupted, m.Method, m.InterruptMS = strings.TrimSpace(before), true, memory.WordTimes, now+5000
			}
			turn++
		}
		now += 8000 // spoken before the next begins
		if m.Role == memory.User {
			now -= 8000
		}
		msgs = append(msgs, m)
	}
	return msgs
}

// figures counts findings: right ones, wrong ones and those that are missing.
type figures struct{ right, wrong, missing int }

func (f figures) String() string {
	return fmt.Sprintf("precision %d/%d, recall %d/%d", f.right, f.right+f.wrong, f.right, f.right+f.missing)
}

// TestCalls makes the labelled calls of each set and fails if a check finds what is not there, or
// less than it found when it was written.
func TestCalls(t *testing.T) {
	for set, least := range map[string]map[string]float64{
		"a": {check.Repeated: .96, check.AskedAgain: .97, check.Unheard: 1},
		"b": {check.Repeated: .67, check.AskedAgain: .96, check.Unheard: .87},
	} {
		got, calls := map[string]*figures{}, 0
		for _, name := range check.Names {
			got[name] = &figures{}
		}
		for lang, phrases := range phrasesOf(t) {
			if !strings.HasSuffix(lang, " "+set) {
				continue
			}
			list := scripts
			if lang == "en a" {
				list = slices.Concat(list, english)
			}
			for _, s := range list {
				msgs := callOf(s.course, phrases)
				if msgs == nil {
					continue
				}
				calls++
				found := check.Found(check.Of(msgs))
				for _, name := range found {
					if name == s.want {
						got[name].right++
					} else {
						got[name].wrong++
						t.Logf("%s: %s: finds %s: %+v", lang, s.name, name, check.Of(msgs))
					}
				}
				if s.want != "" && !slices.Contains(found, s.want) {
					got[s.want].missing++
					t.Logf("%s: %s: misses %s", lang, s.name, s.want)
				}
			}
		}
		for name, f := range got {
			t.Logf("set %s, %d calls, %s: %v", set, calls, name, *f)
			if r := float64(f.right) / float64(max(f.right+f.missing, 1)); f.wrong > 0 || r < least[name] {
				t.Errorf("set %s: %s: %v; want no wrong ones, and a recall of %v", set, name, *f, least[name])
			}
		}
	}
}
