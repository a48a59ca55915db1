package redact_test

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"github.com/heardlog/heardlog/memory/redact"
)

// TestLinks: addresses in parts keep what is not personal.
func TestLinks(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"https://x.example/?email=jane@example.com&size=2":                              "https://x.example/?email=[email]&size=2",
		"https://x.example/?q=%2B49%20171%202345678#top":                                "https://x.example/?q=[phone]#top",
		"https://x.example/?to=+49+171+2345678":                                         "https://x.example/?to=[phone]",
		"https://x.example/?phone=+491712345678&a=b%20c":                                "https://x.example/?phone=[phone]&a=b%20c",
		"https://x.example/u/jane%40example.com/photo.jpg":                              "https://x.example/u/[email]/photo.jpg",
		"https://x.example/u/4111111111111111/photo.jpg":                                "https://x.example/u/[card]/photo.jpg",
		"https://cdn.example/0171234567.jpg?w=10":                                       "https://cdn.example/0171234567.jpg?w=10",
		"https://jane:hunter2@x.example/a?pin=4711":                                     "https://jane:[secret]@x.example/a?pin=[secret]",
		"https://x.example/?next=https%3A%2F%2Fy%2F%3Fm%3Da%40b.example":                "https://x.example/?next=https%3A[email]",
		"tel:+49-171-2345678":                                                           "tel:[phone]",
		"tel:0171/2345678":                                                              "tel:[phone]",
		"sms:+491712345678?body=hi":                                                     "sms:[phone]?body=hi",
		"mailto:jane@example.com?cc=a@b.example&subject=Hello":                          "mailto:[email]?cc=[email]&subject=Hello",
		"MAILTO:jane@example.com":                                                       "MAILTO:[email]",
		"https://x.example/a%ZZ?b=%ZZ":                                                  "https://x.example/a%ZZ?b=%ZZ",
		"https://x.example/?sig=a+b/c==&X-Amz-Date=20260601T120000Z&Expires=1780000000": "https://x.example/?sig=a+b/c==&X-Amz-Date=20260601T120000Z&Expires=1780000000",
		"wss://x.example":                                                               "wss://x.example",
		"":                                                                              "",
		"data:text/plain,call%20%2B49%20171%202345678":                                  "data:text/plain,call%20[phone]",
		"data:,jane@example.com":                                                        "data:,[email]",
		"data:text/plain;base64," + b64("I am jane@example.com"):                        "data:text/plain;base64," + b64("I am [email]"),
		"data:application/json;base64," + b64(`{"card":4111111111111111}`):              "data:application/json;base64," + b64(`{"card":"[card]"}`),
		"data:image/svg+xml,jane@example.com":                                           "data:image/svg+xml,jane@example.com",
		"data:audio/wav;base64,4111111111111111":                                        "data:audio/wav;base64,4111111111111111",
	} {
		r := all()
		part := func(url string) []byte {
			return []byte(`[{"image_url":{"url":` + quote(t, url) + `},"type":"image_url"}]`)
		}
		got := r.Parts(part(in))
		if string(got) != string(part(want)) {
			t.Errorf("%q became %s, want %s", in, got, want)
		}
		if again := r.Parts(got); string(again) != string(got) {
			t.Errorf("the second time %s became %s", got, again)
		}
	}
}

// TestData: texts in parts are searched, whatever way they are encoded; pictures and sound stay
// byte for byte.
func TestData(t *testing.T) {
	t.Parallel()
	noise := make([]byte, 100<<10)
	_, _ = rand.Read(noise)
	sound := base64.StdEncoding.EncodeToString(noise)
	long := strings.Repeat("Nothing here. ", 1000)
	png := b64("\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + string(noise[:100]))
	for in, want := range map[string]string{
		`{"data":"` + b64("call +49 171 2345678") + `"}`:                                          `{"data":"` + b64("call [phone]") + `"}`,
		`{"data":"` + b64(long+"jane@example.com") + `"}`:                                         `{"data":"` + b64(long+"[email]") + `"}`,
		`{"data":"` + b64(`[{"mail":"jane@example.com"}]`) + `","media_type":"application/json"}`: `{"data":"` + b64(`[{"mail":"[email]"}]`) + `","media_type":"application/json"}`,
		`{"data":"jane@example.com","media_type":"text/plain"}`:                                   `{"data":"[email]","media_type":"text/plain"}`,
		`{"data":"{\"mail\":\"jane@example.com\"}"}`:                                              `{"data":"{\"mail\":\"[email]\"}"}`,
		`{"data":"4111111111111111"}`:                                                             `{"data":"[card]"}`,
		`{"file_data":"data:text/csv;base64,` + b64("a,jane@example.com") + `"}`:                  `{"file_data":"data:text/csv;base64,` + b64("a,[email]") + `"}`,
		`{"data":"4111111111111111","format":"pcm16"}`:                                            "",
		`{"data":"` + sound + `"}`:                                                                "",
		`{"data":"` + sound + `","format":"wav"}`:                                                 "",
		`{"data":"` + png + `"}`:                                                                  "",
		`{"file_data":"data:application/pdf;base64,` + sound + `"}`:                               "",
		`{"data":"` + b64(long) + `"}`:                                                            "",
	} {
		if want == "" {
			want = in
		}
		r := all()
		got := string(r.Parts([]byte(`[{"type":"file","file":` + in + `}]`)))
		if got != `[{"file":`+want+`,"type":"file"}]` && !(want == in && got == `[{"type":"file","file":`+in+`}]`) {
			t.Errorf("%.200s became %.200s, want %.200s", in, got, want)
		}
		if again := string(r.Parts([]byte(got))); again != got {
			t.Errorf("the second time %.200s became %.200s", got, again)
		}
	}
}

// TestIDs: names that are personal are replaced, and calls are still linked to their results.
func TestIDs(t *testing.T) {
	t.Parallel()
	r := all()
	for _, id := range []string{"", "call_1", "call_0123456789", "01a206aa-7015-7193-b210-947ed6a0848a", "toolu_01A09q90qw90lq917835lq9", "chatcmpl-9x", "item_000004", "msg-2026-06-01"} {
		if got := r.ID(id); got != id {
			t.Errorf("%q became %q", id, got)
		}
	}
	seen := map[string]string{}
	for _, id := range []string{"+49 171 2345678", "+49 171 2345679", "jane@example.com", "john@example.com", "caller-4111111111111111"} {
		got := r.ID(id)
		if got == id || strings.ContainsAny(got, "@+[] ") || r.ID(got) != got || r.ID(id) != got || seen[got] != "" {
			t.Errorf("%q became %q", id, got)
		}
		seen[got] = id
	}
	call := string(r.Calls([]byte(`[{"id":"jane@example.com","type":"function","function":{"name":"f","arguments":"{}"}}]`)))
	result := string(r.Message([]byte(`{"role":"tool","tool_call_id":"jane@example.com","content":"ok"}`)))
	only := string(r.CallIDs([]byte(`[{"id":"jane@example.com","function":{"arguments":"jane@example.com"}}]`)))
	name := r.ID("jane@example.com")
	if !strings.Contains(call, `"id":"`+name) || !strings.Contains(result, `"tool_call_id":"`+name) || !strings.Contains(only, `"id":"`+name) || !strings.Contains(only, `"arguments":"jane@`) {
		t.Errorf("%s %s %s", call, result, only)
	}
	var none *redact.Redactor
	if none.ID("jane@example.com") != "jane@example.com" || redact.New(redact.Rules{Types: []string{redact.Card}}).ID("jane@example.com") != "jane@example.com" {
		t.Error("no rule replaces a name")
	}
}

func b64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

func quote(t *testing.T, s string) string {
	t.Helper()
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(b.String())
}
