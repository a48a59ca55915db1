package recall_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/heardlog/heardlog/longterm/recall"
)

// figures are what searches in the calls of one language found.
type figures struct {
	language                   string
	answered, first, third     int // questions, and those whose turn is the first hit or among three
	unanswered                 int
	strongAnswered, answeredOK int // by strength; OK is at least weak
	strongUnanswered, noneUn   int
}

// TestFigures: the guide shows what this finds in testdata/calls.txt. Each language is a caller.
func TestFigures(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("testdata/calls.txt")
	if err != nil {
		t.Fatal(err)
	}
	var all []figures
	for _, part := range strings.Split(string(raw), "\n## ")[1:] {
		all = append(all, measure(t, part))
	}
	var table strings.Builder
	table.WriteString("| language | first | among 3 | answered: strong, weak, none | unanswerable: strong, weak, none |\n| --- | --- | --- | --- | --- |\n")
	sum := figures{language: "all"}
	for _, f := range all {
		fmt.Fprintln(&table, f.row())
		sum.answered, sum.first, sum.third, sum.unanswered = sum.answered+f.answered, sum.first+f.first, sum.third+f.third, sum.unanswered+f.unanswered
		sum.strongAnswered, sum.answeredOK = sum.strongAnswered+f.strongAnswered, sum.answeredOK+f.answeredOK
		sum.strongUnanswered, sum.noneUn = sum.strongUnanswered+f.strongUnanswered, sum.noneUn+f.noneUn
	}
	fmt.Fprintln(&table, sum.row())
	page, err := os.ReadFile("../../docs/guides/recall.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), table.String()) {
		t.Errorf("docs/guides/recall.md does not have this table:\n%s", &table)
	}
}

func (f *figures) row() string {
	return fmt.Sprintf("| %s | %d of %d | %d | %d, %d, %d | %d, %d, %d |", f.language, f.first, f.answered, f.third,
		f.strongAnswered, f.answeredOK-f.strongAnswered, f.answered-f.answeredOK,
		f.strongUnanswered, f.unanswered-f.strongUnanswered-f.noneUn, f.noneUn)
}

// measure fills an index with the calls of a language and asks the questions.
func measure(t *testing.T, part string) (f figures) {
	x := recall.NewIndex()
	call, seq, at := "", int64(0), time.Time{}
	lines := strings.Split(part, "\n")
	f.language = lines[0]
	for _, line := range lines[1:] {
		kind, text, _ := strings.Cut(line, " ")
		switch kind {
		case "=":
			var err error
			if at, err = time.Parse(time.DateOnly, text); err != nil {
				t.Fatal(err)
			}
			call, seq = text, 0
		case "c:", "a:":
			seq++
			x.Put(recall.Turn{Call: call, Seq: seq, Role: map[string]string{"c:": "user", "a:": "assistant"}[kind], At: at.UnixMilli() + seq*5000, Text: text})
		}
	}
	for _, line := range lines[1:] {
		kind, text, _ := strings.Cut(line, " ")
		question, gold, _ := strings.Cut(text, " | ")
		if kind != "?" && kind != "!" {
			continue
		}
		hits, strength := x.Search(recall.Query{Text: question, K: 10, Now: now})
		if kind == "!" {
			f.unanswered++
			f.strongUnanswered += count(strength == recall.Strong)
			f.noneUn += count(strength == recall.None)
			continue
		}
		rank := slices.IndexFunc(hits, func(h recall.Hit) bool { return strings.Contains(h.Text, gold) })
		f.answered++
		f.first += count(rank == 0)
		f.third += count(rank >= 0 && rank < 3)
		f.strongAnswered += count(strength == recall.Strong)
		f.answeredOK += count(strength != recall.None)
	}
	return f
}

func count(is bool) int {
	if is {
		return 1
	}
	return 0
}
