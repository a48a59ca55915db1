package tests

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/heardlog/heardlog/internal/simulate"
)

// script writes a random call step by step, together with what the caller heard and the record that
// is expected.
type script struct {
	rnd   *rand.Rand
	words int
	b     strings.Builder
}

// text returns n words that the call has not used yet.
func (s *script) text(n int) string {
	syllables := []string{"ka", "lo", "mi", "ren", "su", "ta", "vo", "zel", "pi", "dor", "nu", "gas"}
	out := make([]string, n)
	for i := range out {
		for k := s.words; ; k /= len(syllables) {
			out[i] += syllables[k%len(syllables)]
			if k < len(syllables) {
				break
			}
		}
		s.words++
	}
	return strings.Join(out, " ")
}

func (s *script) line(v any) {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err) // maps of texts and numbers
	}
	s.b.Write(append(raw, '\n'))
}

func (s *script) chance(percent int) bool { return s.rnd.IntN(100) < percent }

// call writes a whole call of a platform.
func (s *script) call(platform string) {
	head := map[string]any{"platform": platform}
	// Applications, which may do either; of the others it is known.
	if slices.Contains([]string{"openai", "retell", "twilio"}, platform) {
		head["properties"] = map[string]any{"heardlog": map[string]any{"mode": "reconcile"}}
	}
	if s.chance(50) {
		head["greeting"] = s.text(3)
	}
	if s.chance(50) {
		head["system"] = s.text(5)
	}
	if s.chance(30) {
		head["window"] = 4 + s.rnd.IntN(6)
	}
	s.line(head)
	for range 3 + s.rnd.IntN(8) {
		s.turn(platform)
	}
	s.line(map[string]any{"ask": s.text(2), "answer": s.text(3)})
}

// turn writes the tries of one question and the answer that is kept.
func (s *script) turn(platform string) {
	ask, ghosts := s.text(2+s.rnd.IntN(3)), 0
	for s.chance(30) && ghosts < 3 {
		try := map[string]any{"ask": ask, "answer": s.text(4), "discard": true}
		switch s.rnd.IntN(4) {
		case 0:
			try["cut"] = 1 + s.rnd.IntN(4)
		case 1:
			try["cut"], try["overlap"] = 1+s.rnd.IntN(3), true
		case 2:
			try["cut"] = 0
		}
		s.line(try)
		ghosts++
		if s.chance(60) {
			ask += " " + s.text(1)
		}
	}
	n := 3 + s.rnd.IntN(10)
	answer := s.text(n)
	step := map[string]any{"ask": ask, "answer": answer}
	heard := n
	switch s.rnd.IntN(4) {
	case 0: // the platform closes the request, and the voice is behind
		cut := 2 + s.rnd.IntN(n-1)
		heard = 1 + s.rnd.IntN(cut)
		step["cut"] = cut
		if s.chance(30) {
			step["overlap"] = true
		}
	case 1: // all of it came, and the voice is behind
		heard = 1 + s.rnd.IntN(n)
	case 2:
		// Never played; Agora would merge the next question with this one.
		if platform != "agora" && s.chance(50) {
			heard = 0
		}
	}
	said := strings.Fields(answer)
	text := strings.Join(said[:heard], " ")
	if heard > 0 && heard < n && step["cut"] == nil && s.chance(30) { // cut within a word
		text += " " + said[heard][:2]
	}
	step["heard"] = text
	s.line(step)
}

// Random calls leave the expected record: barge-ins anywhere, answers never played, speculations
// and retries of every kind, windows. HEARDLOG_TEST_CALLS=n plays n of them instead of a few.
func TestSimulatedCallsByChance(t *testing.T) {
	t.Parallel()
	n := 24
	if more, err := strconv.Atoi(os.Getenv("HEARDLOG_TEST_CALLS")); err == nil {
		n = more
	}
	s := start(t)
	platforms := simulate.Platforms()
	for seed := range n {
		platform := platforms[seed%len(platforms)]
		t.Run(fmt.Sprintf("%s-%d", platform, seed), func(t *testing.T) {
			sc := script{rnd: rand.New(rand.NewPCG(uint64(seed), 7))}
			sc.call(platform)
			tr, err := simulate.Parse("chance", []byte(sc.b.String()))
			if err != nil {
				t.Fatalf("%v\n%s", err, &sc.b)
			}
			r, err := simulate.Play(t.Context(), simulate.Config{Server: s.url, Client: s.client}, tr)
			if err != nil || !r.Match {
				var b strings.Builder
				if e := r.Print(&b); e != nil {
					t.Error(e)
				}
				t.Errorf("%v\n%s\n%s", err, &sc.b, &b)
			}
		})
	}
}
