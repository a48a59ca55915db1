package echo_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/heardlog/heardlog/llmadapter"
	"github.com/heardlog/heardlog/memory/echo"
)

// longCall returns a list of turns, and the ledger that has all of it except the last words.
func longCall(tb testing.TB, turns int, user, answer func(i int) string) ([]echo.Message, []echo.Known) {
	tb.Helper()
	var body strings.Builder
	var ledger []echo.Known
	body.WriteString(`{"messages":[`)
	for i := range turns {
		fmt.Fprintf(&body, `{"role":"user","content":%s},{"role":"assistant","content":%s},`, strconv.Quote(user(i)), strconv.Quote(answer(i)))
		ledger = append(ledger, echo.Known{Role: "user", Text: user(i)},
			echo.Known{Role: "assistant", Text: answer(i), Original: answer(i), Provisional: i == turns-1})
	}
	body.WriteString(`{"role":"user","content":"and now?"}]}`)
	req, err := llmadapter.ParseRequest([]byte(body.String()))
	if err != nil {
		tb.Fatal(err)
	}
	return messages(req.Messages), ledger
}

// BenchmarkReconcile compares long lists. A voice turn allows about a millisecond for 200 turns,
// whatever they are.
func BenchmarkReconcile(b *testing.B) {
	question := func(i int) string { return fmt.Sprintf("question number %d of the caller", i) }
	answer := func(i int) string { return fmt.Sprintf("Answer number %d, which is a little longer than that.", i) }
	always := func(text string) func(int) string { return func(int) string { return text } }
	for _, bb := range []struct {
		name         string
		user, answer func(int) string
		edit         func([]echo.Known)
	}{
		{"usual", question, answer, nil},
		{"other alphabet", func(i int) string { return fmt.Sprintf("вопрос номер %d", i) }, func(i int) string { return fmt.Sprintf("Ответ номер %d, немного длиннее.", i) }, nil},
		{"always yes", always("yes"), answer, nil},
		{"always the same", always("yes"), always("Ok, and what else may it be?"), nil},
		{"nothing in common", question, answer, func(k []echo.Known) {
			for i := range k {
				k[i].Text, k[i].Original = "x"+k[i].Text, "x"+k[i].Original
			}
		}},
		{"always yes, every answer otherwise", always("yes"), answer, func(k []echo.Known) {
			for i := range k {
				if k[i].Role == "assistant" {
					k[i].Text, k[i].Original, k[i].Provisional = "Something that nobody ever heard of "+strconv.Itoa(i), "Something that nobody ever heard of "+strconv.Itoa(i), true
				}
			}
		}},
		{"merged", func(i int) string { return strings.Repeat("yes ", 1+i%9) }, answer, nil},
	} {
		b.Run(bb.name, func(b *testing.B) {
			in, ledger := longCall(b, 200, bb.user, bb.answer)
			if bb.edit != nil {
				bb.edit(ledger)
			}
			b.ReportAllocs()
			for b.Loop() {
				echo.Asked.Reconcile(in, ledger)
			}
		})
	}
}
