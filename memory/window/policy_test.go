package window_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory/window"
)

// TestMerge: the narrower level wins field by field, and a preset starts again.
func TestMerge(t *testing.T) {
	t.Parallel()
	server := window.Policy{Preset: "lauren", MaxMessages: new(7), Normalise: &window.Normalise{Separator: new(" ")}}
	agent := window.Policy{MaxTokens: new(100), KeepSystem: new(false), Normalise: &window.Normalise{MergeAssistant: new(true)}, SummaryModel: new("small")}
	request := window.Policy{MaxTokens: new(0), Strategy: window.ImportanceBased, SummaryModel: new("")}
	got := window.Merge(server, agent, request)
	want, _ := window.PresetNamed("lauren")
	want.MaxMessages, want.MaxTokens, want.KeepSystem, want.Strategy = new(7), new(0), new(false), window.ImportanceBased
	want.Normalise = &window.Normalise{DropHangingUser: new(false), MergeAssistant: new(true), Separator: new(" ")}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	// A preset at a narrower level resets to that preset, then its own fields.
	got = window.Merge(server, window.Policy{Preset: "ossa", MaxRounds: new(2)}, request)
	want, _ = window.PresetNamed("ossa")
	want.MaxRounds, want.MaxTokens, want.Strategy = new(2), new(0), window.ImportanceBased
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(window.Merge(), window.Policy{Preset: window.DefaultPreset}.Full()); d != "" {
		t.Errorf("nothing said: %s", d)
	}
	// Levels are not written to.
	if d := cmp.Diff(&window.Normalise{Separator: new(" ")}, server.Normalise); d != "" || agent.MaxMessages != nil {
		t.Errorf("a level was changed: %s", d)
	}
	if !(window.Policy{}).IsZero() || server.IsZero() {
		t.Error("IsZero")
	}
}

// TestPresets: each is full, valid, called by its name, and its own: nobody can write to another's.
//
// Rules: 000-1, 001-1, 002-8, 003-1, 004-4
func TestPresets(t *testing.T) {
	t.Parallel()
	all := window.Presets()
	if len(all) != 6 || all[0].Name != window.DefaultPreset {
		t.Fatalf("presets %v", window.PresetNames())
	}
	for _, n := range all {
		if n.Policy.Preset != n.Name {
			t.Errorf("%s is called %s", n.Name, n.Policy.Preset)
		}
		if err := n.Policy.Validate("policy"); err != nil {
			t.Error(err)
		}
		if d := cmp.Diff(n.Policy, n.Policy.Full()); d != "" {
			t.Errorf("%s is not full: %s", n.Name, d)
		}
		raw, err := json.Marshal(n.Policy)
		if err != nil {
			t.Fatal(err)
		}
		var fields map[string]any
		if err := json.Unmarshal(raw, &fields); err != nil || len(fields) != 18 {
			t.Errorf("%s shows %d fields of 18: %s", n.Name, len(fields), raw)
		}
		back, err := window.Decode("policy", raw)
		if d := cmp.Diff(n.Policy, back); err != nil || d != "" {
			t.Errorf("%s: %v %s", n.Name, err, d)
		}
	}
	*all[0].Policy.MaxMessages = 1
	if p, _ := window.PresetNamed("agora"); *p.MaxMessages != 32 {
		t.Error("a preset can be written to")
	}
	if _, ok := window.PresetNamed("other"); ok {
		t.Error("an unknown preset is there")
	}
}

// TestFull: the preset full tells the list as it stands.
func TestFull(t *testing.T) {
	t.Parallel()
	list := seq("s 0", "u 1", result("x", "2"), call("a"), "u 4", "u 5", use("", "b"))
	v := window.Policy{Preset: "full"}.Read(list, nil, window.Extras{})
	if len(v.Entries) != len(list) || v.Dropped != 0 || len(v.Healed) != 0 || v.Shortened != 0 {
		t.Errorf("%+v", v)
	}
}

// TestDecodeErrors: each names field, fault and what is allowed.
func TestDecodeErrors(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`[]`:                           `policy: must be a JSON object`,
		`"lauren"`:                     `policy: must be a JSON object`,
		`{"max_tokens":1`:              `policy: must be a JSON object`,
		`{"max_token":1}`:              `policy.max_token: is not known; known are preset, enabled, max_messages`,
		`{"MAX_TOKENS":1}`:             `policy.MAX_TOKENS: is not known`,
		`{"max_tokens":"1"}`:           `policy.max_tokens: must be a whole number, not "1"`,
		`{"max_tokens":1.5}`:           `policy.max_tokens: must be a whole number, not 1.5`,
		`{"max_tokens":-1}`:            `policy.max_tokens: must be from 0 to 10000000 (0 means no limit), not -1`,
		`{"max_messages":100001}`:      `policy.max_messages: must be from 0 to 100000 (0 means no limit), not 100001`,
		`{"max_rounds":-5}`:            `policy.max_rounds: must be from 0 to 100000`,
		`{"keep_recent":-5}`:           `policy.keep_recent: must be from 0 to 100000, not -5`,
		`{"keep_system":"yes"}`:        `policy.keep_system: must be true or false, not "yes"`,
		`{"preset":"other"}`:           `policy.preset: must be one of recent, pairs, rounds, tokens, limits, full, not "other"`,
		`{"strategy":"newest"}`:        `policy.strategy: must be one of sliding_window, oldest_first, summarize, importance_based, not "newest"`,
		`{"apply":"never"}`:            `policy.apply: must be one of read, write, not "never"`,
		`{"tool_call_integrity":"x"}`:  `policy.tool_call_integrity: must be one of none, trailing, atomic, heal, not "x"`,
		`{"projection":"x"}`:           `policy.projection: must be one of heard_only, heard_marked, heard_and_unsaid, generated, not "x"`,
		`{"tokens":"llama"}`:           `policy.tokens: must be one of estimate, o200k, cl100k`,
		`{"summarize_at":1.5}`:         `policy.summarize_at: must be from 0 (never) to 1, not 1.5`,
		`{"normalise":true}`:           `policy.normalise: must be a JSON object`,
		`{"normalise":{"merge":true}}`: `policy.normalise.merge: is not known; known are drop_hanging_user, merge_assistant, separator`,
		`{"normalise":{"separator":"` + strings.Repeat("-", 65) + `"}}`: `policy.normalise.separator: has 65 bytes; at most 64 are allowed`,
		`{"normalise":{"separator":"\u0000"}}`:                          `policy.normalise.separator: must not contain a NUL character`,
		`{"summary_model":"` + strings.Repeat("m", 257) + `"}`:          `policy.summary_model: has 257 bytes; at most 256 are allowed`,
	} {
		p, err := window.Decode("policy", []byte(body))
		if !fault.Is(err, fault.Invalid) || !strings.HasPrefix(err.Error(), want) || !p.IsZero() {
			t.Errorf("%s: %v\nwant %s", body, err, want)
		}
	}
	nan := math.NaN()
	if err := (window.Policy{SummarizeAt: &nan}).Validate(""); err == nil || !strings.HasPrefix(err.Error(), "summarize_at: ") {
		t.Errorf("NaN: %v", err)
	}
	for _, body := range []string{"", "null", " {} ", `{"preset":null,"normalise":null,"max_tokens":null}`} {
		if p, err := window.Decode("policy", []byte(body)); err != nil || !p.IsZero() {
			t.Errorf("%q: %+v %v", body, p, err)
		}
	}
}

// TestParseSetting: the server's setting is a preset's name or an object.
func TestParseSetting(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]window.Policy{
		"": {}, " limits ": {Preset: "limits"}, "ossa": {Preset: "limits"}, `{"preset":"ovos","max_messages":3}`: {Preset: "pairs", MaxMessages: new(3)},
	} {
		got, err := window.ParseSetting("HEARDLOG_POLICY", value)
		if d := cmp.Diff(want, got); d != "" || err != nil {
			t.Errorf("%q: %v %s", value, err, d)
		}
	}
	if _, err := window.ParseSetting("HEARDLOG_POLICY", "other"); err == nil || err.Error() != `HEARDLOG_POLICY: must be one of recent, pairs, rounds, tokens, limits, full, a JSON object, not "other"` {
		t.Error(err)
	}
}

// TestOrder: filters, flags, rounds, messages, tokens, integrity, then summary, system and
// utterance: each step sees what the one before it left.
func TestOrder(t *testing.T) {
	t.Parallel()
	list := seq("u other", "s rule", "u 0123456789", "a 0123456789", "u 0123456789", call("a"), result("a", "0123456789"), "a 0123456789", "u 0123456789", "a done")
	for i := range list {
		list[i].Scope = &window.Scope{UserID: "me"}
	}
	list[0].Scope = nil
	x := window.Extras{Scope: &window.Scope{UserID: "me"}, System: talk("s prompt"), Summary: "sum", Utterance: new("now")}
	p := window.Policy{Preset: "full", MaxRounds: new(2), MaxMessages: new(5), MaxTokens: new(8), ToolCallIntegrity: window.IntegrityAtomic}
	want := []string{"system: prompt", "system: rule", "system: " + window.SummaryText("sum"), "assistant: 0123456789", "user: 0123456789", "assistant: done", "user: now"}
	v := p.Read(list, nil, x)
	if d := cmp.Diff(want, texts(v)); d != "" {
		t.Error(d)
	}
	if v.Dropped != 5 || v.Tokens != (4+10+10+4)/4 {
		t.Errorf("dropped %d, tokens %d", v.Dropped, v.Tokens)
	}
}
