package secret_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/heardlog/heardlog/internal/secret"
)

func TestHide(t *testing.T) {
	t.Parallel()
	secrets := []string{"hunter22", `a"b/c`, "", "abc"}
	for in, want := range map[string]string{
		"key hunter22, again hunter22":    "key [secret], again [secret]",
		`{"m":"a\"b/c"}`:                  `{"m":"[secret]"}`,
		"abc":                             "abc",
		"sk-proj-1234567890 used":         "[secret] used",
		"Authorization: bearer abcdef123": "Authorization: [secret]",
		"bearer of news":                  "bearer of news",
		"risk-averse task-oriented":       "risk-averse task-oriented",
		"basic information is missing":    "basic information is missing",
		"authorization: Basic dTpwYXNz":   "[secret]",
		"AKIAABCDEFGHIJKLMNOP denied":     "[secret] denied",
		"at https://me:pw@host/x":         "at https://[secret]@host/x",
		"GET https://h/x?a=1&sig=s%2Fs":   "GET https://h/x?a=1&sig=[secret]",
		"is it? a=b&c=d; key=value":       "is it? a=b&c=d; key=value",
	} {
		if got := string(secret.NewSet(secrets...).Hide([]byte(in))); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// TestForms: a text that repeats a secret in another form does not show it.
func TestForms(t *testing.T) {
	t.Parallel()
	set := secret.NewSet("p&ss/wörd+1", "Basic dXNlcjpiYXNpYy1wYXNz", "me:login-pass")
	for _, in := range []string{
		"p&ss/wörd+1", `p\u0026ss/wörd+1`, "p%26ss%2Fw%C3%B6rd%2B1", "p&ss%2Fw%C3%B6rd+1", "dXNlcjpiYXNpYy1wYXNz", "user:basic-pass", "basic-pass",
		"bWU6bG9naW4tcGFzcw==",
	} {
		if got := string(set.Remove([]byte("<" + in + ">"))); got != "<[secret]>" {
			t.Errorf("%s: %s", in, got)
		}
	}
}

// TestTooMany: the secrets of one call may be as many as its request holds strings.
func TestTooMany(t *testing.T) {
	t.Parallel()
	var many []string
	for i := range secret.MaxSecrets {
		many = append(many, fmt.Sprintf("aaaa%d", i))
	}
	if got := string(secret.NewSet(append(many, "x")...).Hide([]byte("<aaaa1>"))); got != "<[secret]>" {
		t.Error(got)
	}
	for _, set := range []secret.Set{secret.NewSet(append(many, "aaaaa")...), secret.NewSet(strings.Repeat("a", secret.MaxBytes+1))} {
		for _, in := range []string{"aaaaa", strings.Repeat("a", 1000)} {
			if got := set.Hide([]byte(in)); strings.Contains(string(got), "aaaa") || !json.Valid(got) {
				t.Errorf("%s", got)
			}
		}
		if got := set.Hide(nil); len(got) != 0 {
			t.Errorf("an empty text became %s", got)
		}
		if got := set.Begun([]byte("text")); got != len("text") {
			t.Errorf("%d bytes may be the beginning of a secret", got)
		}
	}
}

func TestNamed(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"api_key", "apikey", "API-Key", "key", "token", "access_token", "secret", "client_secret", "authorization", "Proxy-Authorization", "sig", "signature",
		"password", "X-Amz-Signature", "X-Amz-Credential", "X-Amz-Security-Token", "AWSAccessKeyId", "aws_secret_access_key", "subscription-key",
		"Ocp-Apim-Subscription-Key", "x-functions-key", "api-key", "private_key", "adc_credentials_string", "Cookie", "xi-api-key",
	} {
		if !secret.Named(name) {
			t.Errorf("%s is a secret", name)
		}
	}
	for _, name := range []string{
		"prompt_cache_key", "max_tokens", "keywords", "model", "user", "code", "signal", "author", "monkey", "temperature", "voice", "region", "",
	} {
		if secret.Named(name) {
			t.Errorf("%s is none", name)
		}
	}
}

func TestURL(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string][2]string{
		"https://h/x?key=a%20b&v=1&code=c#f": {"https://h/x?key=[secret]&v=1&code=[secret]#f", "https://h/x?v=1#f"},
		"https://u:p@h:1/x@y?a=@":            {"https://[secret]@h:1/x@y?a=@", "https://h:1/x@y?a=@"},
		"https://h/x?sig=":                   {"https://h/x?sig=", "https://h/x?sig="},
		"https://h/x?api%2Dkey=k":            {"https://h/x?api%2Dkey=[secret]", "https://h/x"},
		"no address":                         {"no address", "no address"},
	} {
		if got := secret.MaskURL(raw); got != want[0] {
			t.Errorf("%s is shown as %s", raw, got)
		}
		if got := secret.StripURL(raw); got != want[1] {
			t.Errorf("%s is stripped to %s", raw, got)
		}
	}
	const stored = "https://h/x?key=a%20b&v=1&sig=s"
	if got, ok := secret.RestoreURL("https://u:p@h/y?sig=%5Bsecret%5D&key=***&v=2", stored); !ok || got != "https://u:p@h/y?sig=s&key=a%20b&v=2" {
		t.Error(got, ok)
	}
	if got, ok := secret.RestoreURL(secret.MaskURL(stored), stored); !ok || got != stored {
		t.Error(got, ok)
	}
	if _, ok := secret.RestoreURL("https://h/y?token=[secret]", stored); ok {
		t.Error("a mask without a stored value was accepted")
	}
	if got := secret.InURL("https://u:p4ss@h/?sig=a%2Bb&x=1"); !slices.Equal(got, []string{"a%2Bb", "a+b", "u:p4ss", "p4ss"}) {
		t.Error(got)
	}
}

// TestLLMURL checks that a key in the query of an LLM's address is secret whatever its name is, and
// that hiding it leaves an error readable.
func TestLLMURL(t *testing.T) {
	t.Parallel()
	const raw = "https://u:p4ss@h/x?k=letmein-42&api-version=2026-01-01&t=ab1&stream=true&q=a%20key%20of%20words#f"
	if got := secret.MaskLLMURL(raw); got != "https://[secret]@h/x?k=[secret]&api-version=2026-01-01&t=[secret]&stream=[secret]&q=[secret]#f" {
		t.Error(got)
	}
	if got := secret.StripLLMURL(raw); got != "https://h/x?api-version=2026-01-01#f" {
		t.Error(got)
	}
	set := secret.NewSet(secret.InLLMURL(raw)...)
	for text, want := range map[string]string{
		`{"error":"no such key: letmein-42","stream":true}`:  `{"error":"no such key: [secret]","stream":true}`,
		`GET /x?k=letmein-42&t=ab1: 403`:                     `GET /x?[secret]&[secret]: 403`,
		`"a key of words" has ended, api-version 2026-01-01`: `"[secret]" has ended, api-version 2026-01-01`,
	} {
		if got := string(set.Hide([]byte(text))); got != want {
			t.Errorf("%s is shown as %s", text, got)
		}
	}
}

func TestJSON(t *testing.T) {
	t.Parallel()
	const doc = `{"a":1.50,"api_key":"k1","deep":[{"token":"k2","n":2}],"credentials":{"type":"x","id":["k3"]},"url":"https://h/?sig=k4&v=1","max_tokens":5,"key":7}`
	got := secret.InJSON([]byte(doc))
	slices.Sort(got)
	if !slices.Equal(got, []string{"k1", "k2", "k3", "k4", "x"}) {
		t.Error(got)
	}
	if got := secret.InJSON([]byte(doc), "credentials", "deep", "url"); !slices.Equal(got, []string{"k1"}) {
		t.Error(got)
	}
	if got := string(secret.Strip([]byte(doc))); got != `{"a":1.50,"deep":[{"n":2}],"key":7,"max_tokens":5,"url":"https://h/?v=1"}` {
		t.Error(got)
	}
	// Only the last of members with one name counts, but all of them are sent on.
	const twice = `{"a":{"api_key":"real"},"a":1,"token":"k1","token":"k2"}`
	if got := secret.InJSON([]byte(twice)); !slices.Equal(got, []string{"real", "k1", "k2"}) {
		t.Error(got)
	}
	for in, want := range map[string]string{twice: `{"a":1}`, `{"a":{"api_key":"real"},"a":1}`: `{"a":1}`, `{"token":"k","token":1}`: `{"token":1}`} {
		if got := string(secret.Strip([]byte(in))); got != want {
			t.Errorf("%s is stripped to %s", in, got)
		}
	}
	for _, plain := range []string{"", `{ "a": 1 }`} {
		if got := string(secret.Strip([]byte(plain))); got != plain {
			t.Error(got)
		}
	}
	back, missing := secret.Restore([]byte(`{"api_key":"[secret]","deep":[{"token":"***"}],"note":"***","a":2}`), []byte(doc))
	if missing != "" || string(back) != `{"a":2,"api_key":"k1","deep":[{"token":"k2"}],"note":"***"}` {
		t.Error(string(back), missing)
	}
	if _, missing := secret.Restore([]byte(`{"secret":"[secret]"}`), []byte(doc)); missing != "secret" {
		t.Error(missing)
	}
	if !json.Valid(secret.Strip([]byte(strings.Repeat("[", 100) + `{"key":"k"}` + strings.Repeat("]", 100)))) {
		t.Error("a deep document is no JSON any more")
	}
}
