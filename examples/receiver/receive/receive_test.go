package receive_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/heardlog/heardlog/examples/receiver/receive"
	"github.com/heardlog/heardlog/internal/secret"
	"github.com/heardlog/heardlog/webhook"
	hook "github.com/heardlog/heardlog/webhook/receive"
)

const key = secret.String("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")

// history is an event as Heardlog makes it.
func history(t *testing.T, id string) []byte {
	t.Helper()
	body, err := webhook.Encode(webhook.Notice{SID: "a1", ID: id, AtMS: 1700000000000, Payload: webhook.History{
		About: webhook.About{AgentID: "a1", Name: "bot\x1b[2J"},
		Contents: []json.RawMessage{
			json.RawMessage(`{"role":"user","content":"Where is my parcel?"}`),
			json.RawMessage(`{"role":"assistant","content":"It is","metadata":{"interrupted":true,"original":"It is in Köln."}}`),
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// send makes one signed attempt through the real sender.
func send(t *testing.T, url, id string, body []byte, change func(*webhook.Endpoint)) webhook.Outcome {
	t.Helper()
	s, err := webhook.NewSender(webhook.SenderConfig{Dial: new(net.Dialer).DialContext})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	e := webhook.Endpoint{URL: url, Agora: true, Secrets: []webhook.SigningSecret{{Value: key}}}
	if change != nil {
		change(&e)
	}
	return s.Send(t.Context(), webhook.Delivery{EventID: id, Body: body, Attempt: 1, Endpoint: e})
}

func TestReceive(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	r := newReceiver(t, receive.Config{Secret: string(key), Out: &out, Once: 2, Fail: 1})
	srv := httptest.NewServer(r)
	t.Cleanup(srv.Close)

	if o := send(t, srv.URL, "n:1", history(t, "n:1"), nil); o.Status != 500 {
		t.Errorf("told to fail: %+v", o)
	}
	for range 2 { // the second is a repeat, as after an answer that got lost
		if o := send(t, srv.URL, "n:1", history(t, "n:1"), nil); o.Status != 200 || !strings.Contains(string(o.Response), `"code":0`) {
			t.Errorf("%+v, %s", o, o.Response)
		}
	}
	select {
	case <-r.Done():
		t.Error("a repeat counts")
	default:
	}
	if o := send(t, srv.URL, "n:2", history(t, "n:2"), func(e *webhook.Endpoint) { e.Agora = false }); string(o.Response) != `{"code":0,"msg":"success"}` {
		t.Errorf("%+v, %s", o, o.Response)
	}
	select {
	case <-r.Done():
	case <-time.After(time.Minute):
		t.Error("not done after two events")
	}
	srv.Close()
	for _, want := range []string{
		"answering 500, as told (1 of 1)", `103 agent a1 "bot\x1b[2J" history: 2 messages (verified: Standard Webhooks, attempt 1)`,
		"  user: Where is my parcel?\n", "  assistant: It is [interrupted] [not heard to its end: It is in Köln.]\n",
		"n:1: here before, dropped", "(verified: Standard Webhooks, attempt 1)", `  "agent_id": "a1",`,
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output lacks %q:\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "\x1b") {
		t.Error("a control character reached the terminal")
	}
}

func TestReceiveRefuses(t *testing.T) {
	t.Parallel()
	body := history(t, "n:1")
	v1, v2 := webhook.SignAgora(key, body)
	std := func(at time.Time, s secret.String) http.Header {
		sig, err := webhook.SignStandard(s, "n:1", at, body)
		if err != nil {
			t.Fatal(err)
		}
		h := http.Header{}
		h.Set(webhook.HeaderID, "n:1")
		h.Set(webhook.HeaderTimestamp, fmt.Sprint(at.Unix()))
		h.Set(webhook.HeaderSignature, sig)
		return h
	}
	bothButOneWrong := std(time.Now(), key)
	bothButOneWrong.Set(webhook.HeaderAgoraV2, v2[1:]+"0")
	for _, tt := range []struct {
		name   string
		h      http.Header
		body   string
		status int
	}{
		{"Standard Webhooks alone", std(time.Now(), key), "", 200},
		{"Agora alone", http.Header{"Agora-Signature-V2": {v2}}, "", 401},
		{"Agora alone, wanted", http.Header{"Agora-Signature-V2": {v2}}, "", 200},
		{"none", http.Header{}, "", 401},
		{"SHA-1 alone", http.Header{"Agora-Signature": {v1}}, "", 401},
		{"too old", std(time.Now().Add(-6*time.Minute), key), "", 401},
		{"from the future", std(time.Now().Add(6*time.Minute), key), "", 401},
		{"other secret", std(time.Now(), "other"), "", 401},
		// While secrets are changed: the sender signs Agora's with one only.
		{"Agora's of another secret beside it", bothButOneWrong, "", 200},
		{"other body", http.Header{"Agora-Signature-V2": {v2}}, string(body) + " ", 401},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if tt.body == "" {
				tt.body = string(body)
			}
			if got := post(t, key, tt.h, strings.NewReader(tt.body), tt.name == "Agora alone, wanted"); got != tt.status {
				t.Errorf("status %d, want %d", got, tt.status)
			}
		})
	}
	for name, tt := range map[string]struct {
		body   io.Reader
		status int
	}{
		"not verified":  {bytes.NewReader(body), 200},
		"not JSON":      {strings.NewReader("hello"), 400},
		"not an event":  {strings.NewReader("{}"), 400},
		"odd payload":   {strings.NewReader(`{"noticeId":"n","eventType":101,"payload":7}`), 400},
		"body too long": {io.LimitReader(zeros{}, hook.DefaultMaxBody+1), 413},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := post(t, "", http.Header{}, tt.body, false); got != tt.status {
				t.Errorf("status %d, want %d", got, tt.status)
			}
		})
	}
	rec := httptest.NewRecorder()
	newReceiver(t, receive.Config{Out: io.Discard}).ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/", nil))
	if rec.Code != 405 || rec.Header().Get("Allow") != "POST" {
		t.Errorf("GET: %d", rec.Code)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

func newReceiver(t *testing.T, c receive.Config) *receive.Receiver {
	t.Helper()
	r, err := receive.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func post(t *testing.T, s secret.String, h http.Header, body io.Reader, agora bool) int {
	t.Helper()
	req := httptest.NewRequest(http.MethodPost, "/", body)
	req.Header = h
	rec := httptest.NewRecorder()
	newReceiver(t, receive.Config{Secret: string(s), Agora: agora, Out: io.Discard}).ServeHTTP(rec, req)
	if !json.Valid(rec.Body.Bytes()) {
		t.Errorf("the answer is not JSON: %q", rec.Body)
	}
	return rec.Code
}

// The program against the worker: first tries fail, retries come, it exits when it has seen enough.
func TestRun(t *testing.T) {
	t.Parallel()
	pr, pw := io.Pipe()
	env := map[string]string{"RECEIVER_SECRET": string(key), "RECEIVER_FAIL": "2"}
	done := make(chan error, 1)
	go func() {
		done <- receive.Run(t.Context(), []string{"-addr", "127.0.0.1:0", "-once", "3"}, func(k string) string { return env[k] }, pw, io.Discard)
		pw.Close()
	}()
	lines := bufio.NewScanner(pr)
	if !lines.Scan() || !strings.HasPrefix(lines.Text(), "http://127.0.0.1:") {
		t.Fatalf("first line %q", lines.Text())
	}
	url := lines.Text()
	var out strings.Builder
	var reading sync.WaitGroup
	reading.Go(func() {
		for lines.Scan() {
			out.WriteString(lines.Text() + "\n")
		}
	})
	failures := 0
	for i := range 3 {
		id := fmt.Sprintf("n:%d", i)
		for {
			o := send(t, url, id, history(t, id), nil)
			if o.OK() {
				break
			}
			if failures++; failures > 2 {
				t.Fatalf("%+v", o)
			}
		}
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	reading.Wait()
	if failures != 2 || strings.Count(out.String(), "103 agent a1") != 3 {
		t.Errorf("%d failures, output:\n%s", failures, out.String())
	}
}

func TestRunSettings(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"bad secret":   {[]string{"-secret", "v1,whsec_hunter2"}, "whsec_"},
		"bad address":  {[]string{"-addr", "nowhere"}, "nowhere"},
		"odd argument": {[]string{"now"}, `"now"`},
		"bad number":   {[]string{"-once", "x"}, "once"},
	} {
		err := receive.Run(t.Context(), tt.args, func(string) string { return "" }, io.Discard, io.Discard)
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", name, err)
		}
	}
	var help bytes.Buffer
	err := receive.Run(t.Context(), []string{"-h"}, func(string) string { return "hunter2" }, io.Discard, &help)
	if !errors.Is(err, flag.ErrHelp) || !strings.Contains(help.String(), "-fail K") || strings.Contains(help.String(), `secret (default "hunter2")`) {
		t.Errorf("%v\n%s", err, help.String())
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := receive.Run(ctx, []string{"-addr", "127.0.0.1:0"}, func(string) string { return "" }, io.Discard, io.Discard); err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("stopped at once: %v", err)
	}
}
