package llmadapter

import (
	"slices"
	"strings"
)

// This file tells what a platform's own list of messages brings to a memory that has kept a ledger of the same
// conversation. All of it is pure functions over message lists (reference/platforms.md 2.2 and 2.3).
//
// Lists are aligned by user messages, from the end: windows drop old turns, summaries replace them, and the platform cuts
// or rewrites what we said, but what the caller said last stays as it was. Where nothing aligns, only what follows the
// last answer counts as new, so that no list, however strange, is stored twice.

// Known is a message that the ledger has. Superseded and empty answers are left out of the list.
type Known struct {
	Role     string // user, assistant or tool
	Text     string // content: what was heard, as far as is known
	Original string // what was generated; Text where that is all there is
	CallIDs  []string
	// Provisional is an answer of ours that nothing but our own socket speaks for: an echo confirms it, a second request
	// for the same user message replaces it.
	Provisional bool
}

// Echo is what the list tells of one answer.
type Echo struct {
	Known int    // index into the known messages
	Full  bool   // heard to the end
	Heard string // the beginning of Original that was heard, where not Full
}

// Extended is a known user message that came again with more behind it.
type Extended struct {
	Known int
	Text  string
}

// Reconciliation is what a list brings. Indices of incoming messages refer to the list with its system messages.
type Reconciliation struct {
	New       []int // incoming messages that the ledger lacks, in order
	Pair      []int // for each incoming message the known one that it is, -1 for none
	Echoes    []Echo
	Supersede []int // known answers that this request asks for anew: ghosts
	Extend    *Extended
}

// AlignFunc finds the beginning of generated that heard stands for; ok is false if heard is no part of it.
type AlignFunc func(generated, heard string) (prefix string, ok bool)

// limits of the search: what is further back decides nothing.
const (
	maxAlignUsers = 256 // user messages looked at in each list
	maxSkip       = 4   // newest known user messages that the platform may have dropped
	maxMerge      = 8   // user messages that one side may have merged into one
)

// turnOf is a user message with what follows it up to the next one. The first turn of a list has no user message.
type turnOf struct {
	user int // index; -1 in the first
	norm string
	rest []int
}

type aligner struct {
	in     []Incoming
	known  []Known
	align  AlignFunc
	texts  []string          // of in
	norms  map[string]string // of texts that were compared
	a, b   []turnOf          // incoming, known; [0] is what comes before the first user message
	result Reconciliation
}

// Reconcile compares a platform's list with the ledger. align may be nil: then PrefixOf is used.
func Reconcile(in []Incoming, known []Known, align AlignFunc) Reconciliation {
	if align == nil {
		align = PrefixOf
	}
	x := aligner{in: in, known: known, align: align, texts: make([]string, len(in))}
	x.result.Pair = make([]int, len(in))
	x.a = []turnOf{{user: -1}}
	for i := range in {
		x.result.Pair[i] = -1
		if in[i].IsSystem() {
			continue
		}
		x.texts[i] = in[i].Text()
		x.a = addTurn(x.a, i, in[i].Role, x.texts[i])
	}
	x.b = []turnOf{{user: -1}}
	for j, k := range known {
		x.b = addTurn(x.b, j, k.Role, k.Text)
	}
	x.run()
	return x.result
}

func addTurn(turns []turnOf, i int, role, text string) []turnOf {
	if role == "user" {
		return append(turns, turnOf{user: i, norm: Normalise(text)})
	}
	last := &turns[len(turns)-1]
	last.rest = append(last.rest, i)
	return turns
}

// step is one matched place: turns (from, to] of each list are the same user words.
type step struct{ aFrom, a, bFrom, b int }

func (x *aligner) run() {
	m, n := len(x.a)-1, len(x.b)-1
	var best []step
	bestScore, bestSkip := 0, 0
	for skip := 0; skip < n && skip <= maxSkip; skip++ {
		for k := m; k >= 1 && k > m-maxAlignUsers; k-- {
			steps, score := x.match(k, n-skip)
			if score -= 3 * skip; len(steps) > 0 && (best == nil || score > bestScore) {
				best, bestScore, bestSkip = steps, score, skip
			}
		}
	}
	switch {
	case best != nil:
		// The first step may reach the beginning of both lists, where a greeting stands.
		if first := best[len(best)-1]; first.aFrom == 0 && first.bFrom == 0 {
			x.pairGap(x.a[0].rest, x.b[0].rest, true)
		}
		for _, s := range slices.Backward(best) {
			x.pairUsers(s)
			x.pairGap(x.a[s.a].rest, x.b[s.b].rest, true)
		}
		x.tail(best[0].a, best[0].b, bestSkip)
	case n <= 1 && (n == 0 || m >= 1 && x.extends(1, 1)):
		x.pairGap(x.a[0].rest, x.b[0].rest, true)
		x.tail(0, 0, n)
	default:
		x.onlyTrailing()
	}
}

// match walks back from turns k and n and gives the places where both lists say the same, newest first, and how much that is worth.
func (x *aligner) match(k, n int) (steps []step, score int) {
	i, j := k, n
	for i >= 1 && j >= 1 && len(steps) < maxAlignUsers {
		s, ok := x.sameUsers(i, j)
		if !ok {
			score--
			break
		}
		steps = append(steps, s)
		score += 4 + x.sameAnswer(s.a, s.b)
		i, j = s.aFrom, s.bFrom
	}
	if j == 0 && i > 0 { // words older than the ledger: another place fits better, if there is one
		score--
	}
	return steps, score
}

// sameUsers tells whether turns i and j end in the same user words, one of the lists perhaps having merged several into one.
func (x *aligner) sameUsers(i, j int) (step, bool) {
	u, v := x.a[i].norm, x.b[j].norm
	if u == v {
		return step{i - 1, i, j - 1, j}, true
	}
	if joined, from := joinBack(x.b, j, u); joined {
		return step{i - 1, i, from, j}, true
	}
	if joined, from := joinBack(x.a, i, v); joined {
		return step{from, i, j - 1, j}, true
	}
	return step{}, false
}

// joinBack tells whether whole is the words of turns (from, last] put together.
func joinBack(turns []turnOf, last int, whole string) (bool, int) {
	rest, ok := strings.CutSuffix(whole, turns[last].norm)
	for from := last - 1; ok && from >= 1 && last-from < maxMerge; from-- {
		rest = strings.TrimSuffix(rest, " ")
		if rest == turns[from].norm {
			return true, from - 1
		}
		rest, ok = strings.CutSuffix(rest, turns[from].norm)
	}
	return false, 0
}

// sameAnswer weighs what followed the user's words in both lists: it decides between places where he said the same.
func (x *aligner) sameAnswer(i, j int) int {
	var heard string
	for _, at := range x.a[i].rest {
		if x.in[at].Role == "assistant" && x.texts[at] != "" {
			heard = x.texts[at]
			break
		}
	}
	if heard == "" {
		return 0
	}
	said := false
	for _, at := range x.b[j].rest {
		if k := &x.known[at]; k.Role == "assistant" && k.Original != "" {
			if _, ok := x.heardOf(k, heard); ok {
				return 2
			}
			said = true
		}
	}
	if said {
		return -2
	}
	return 0
}

func (x *aligner) pairUsers(s step) {
	i, j := s.aFrom+1, s.bFrom+1
	for ; i <= s.a; i++ {
		x.result.Pair[x.a[i].user] = x.b[min(j, s.b)].user
		j++
	}
	if s.a-s.aFrom == 1 { // many known ones became one: it is the last of them
		x.result.Pair[x.a[s.a].user] = x.b[s.b].user
	}
}

// norm is Normalise, once for each text.
func (x *aligner) norm(s string) string {
	n, ok := x.norms[s]
	if !ok {
		n = Normalise(s)
		if x.norms == nil {
			x.norms = map[string]string{}
		}
		x.norms[s] = n
	}
	return n
}

// heardOf tells what the words of a platform say about an answer of the ledger.
func (x *aligner) heardOf(k *Known, heard string) (Echo, bool) {
	if heard == k.Original || x.norm(heard) == x.norm(k.Original) {
		return Echo{Full: true}, true
	}
	if prefix, ok := x.align(k.Original, heard); ok && prefix != "" {
		return Echo{Full: prefix == k.Original, Heard: prefix}, true
	}
	if k.Text != k.Original && x.norm(heard) == x.norm(k.Text) {
		return Echo{Heard: k.Text}, true
	}
	return Echo{}, false
}

// pairGap pairs answers and tool results between two user messages and gives the incoming ones that found nobody. With
// echo it also notes what they tell.
func (x *aligner) pairGap(in, known []int, echo bool) (unpaired []int) {
	taken := map[int]bool{}
	for _, i := range in {
		at := -1
		var e Echo
		for _, j := range known {
			if k := &x.known[j]; !taken[j] {
				var ok bool
				if e, ok = x.same(i, k); ok {
					at = j
					break
				}
			}
		}
		if at < 0 {
			unpaired = append(unpaired, i)
			continue
		}
		taken[at] = true
		x.result.Pair[i] = at
		if echo && x.known[at].Provisional && x.texts[i] != "" && (e.Full || e.Heard != "") {
			e.Known = at
			x.result.Echoes = append(x.result.Echoes, e)
		}
	}
	return unpaired
}

func (x *aligner) same(i int, k *Known) (Echo, bool) {
	in := &x.in[i]
	switch in.Role {
	case "tool", "function":
		return Echo{}, k.Role == "tool" && (in.ToolCallID != "" && slices.Contains(k.CallIDs, in.ToolCallID) || in.ToolCallID == "" && Normalise(x.texts[i]) == Normalise(k.Text))
	case "assistant":
		if k.Role != "assistant" {
			return Echo{}, false
		}
		if in.ToolCalls != nil {
			for _, id := range CallIDs(in.ToolCalls) {
				if slices.Contains(k.CallIDs, id) {
					e, _ := x.heardOf(k, x.texts[i])
					return e, true
				}
			}
			return Echo{}, false
		}
		return x.heardOf(k, x.texts[i])
	}
	return Echo{}, false
}

// CallIDs gives the ids of a tool_calls array.
func CallIDs(toolCalls []byte) []string {
	var out []string
	if len(toolCalls) > 0 && toolCalls[0] == '[' {
		walkArray(toolCalls, func(call []byte) {
			if call[0] != '{' {
				return
			}
			if id := stringMember(call, "id"); id != "" {
				out = append(out, id)
			}
		})
	}
	return out
}

// tail deals with what follows the last aligned turns, a of the list and b of the ledger, whose newest skip turns the list lacks.
func (x *aligner) tail(a, b, skip int) {
	var unpaired []int
	spoken := false
	for _, i := range x.a[a].rest {
		if x.result.Pair[i] < 0 {
			unpaired = append(unpaired, i)
		} else if x.in[i].Role == "assistant" && x.in[i].ToolCalls == nil {
			spoken = true
		}
	}
	// An answer of ours that found no counterpart was perhaps rewritten by the platform: what stands in its place is then
	// neither an echo nor something new.
	mine := x.b[b].rest
	rewritten := !spoken && slices.ContainsFunc(mine, func(j int) bool {
		return x.known[j].Role == "assistant" && x.known[j].Original != "" && !slices.Contains(x.result.Pair, j)
	})
	for _, i := range unpaired {
		if x.in[i].Role == "assistant" && x.in[i].ToolCalls == nil && rewritten {
			continue
		}
		if x.in[i].Role == "assistant" && x.in[i].ToolCalls == nil && x.texts[i] == "" {
			continue
		}
		x.result.New = append(x.result.New, i)
	}
	next := a + 1
	switch {
	case next >= len(x.a) && skip == 0 && a > 0 && len(x.a[a].rest) == 0:
		if x.repeated(b) {
			return
		}
		// The answer was confirmed long ago: the caller said the same again.
		x.result.Pair[x.a[a].user] = -1
		x.result.New = append(x.result.New, x.a[a].user)
		return
	case next < len(x.a) && skip == 1 && x.extends(next, b+1):
		j := x.b[b+1].user
		x.result.Pair[x.a[next].user] = j
		if text := x.texts[x.a[next].user]; text != x.known[j].Text {
			x.result.Extend = &Extended{Known: j, Text: text}
		}
		x.repeated(b + 1)
		x.result.New = append(x.result.New, x.a[next].rest...)
		next++
	}
	for ; next < len(x.a); next++ {
		x.result.New = append(append(x.result.New, x.a[next].user), x.a[next].rest...)
	}
}

// repeated supersedes the answers to known turn b; false if one of them is not provisional, and nothing is superseded.
func (x *aligner) repeated(b int) bool {
	var ghosts []int
	for _, j := range x.b[b].rest {
		if x.known[j].Role != "assistant" {
			continue
		}
		if !x.known[j].Provisional {
			return false
		}
		ghosts = append(ghosts, j)
	}
	x.result.Supersede = append(x.result.Supersede, ghosts...)
	return true
}

// extends tells whether the user message of incoming turn i is that of known turn j, the last one, with more behind it,
// and may replace it.
func (x *aligner) extends(i, j int) bool {
	u, v := x.a[i].norm, x.b[j].norm
	if v == "" || !strings.HasPrefix(u, v) || i != len(x.a)-1 {
		return false
	}
	return !slices.ContainsFunc(x.b[j].rest, func(r int) bool {
		return x.known[r].Role != "assistant" || !x.known[r].Provisional
	})
}

// onlyTrailing takes as new what follows the last answer in a list that has nothing in common with the ledger.
func (x *aligner) onlyTrailing() {
	for i := len(x.in) - 1; i >= 0; i-- {
		switch {
		case x.in[i].IsSystem():
			continue
		case x.in[i].Role == "assistant":
			slices.Reverse(x.result.New)
			return
		}
		x.result.New = append(x.result.New, i)
	}
	slices.Reverse(x.result.New)
}
