package webhook_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/webhook"
)

func newThin(t *testing.T, key byte) *webhook.Thin {
	t.Helper()
	thin, err := webhook.NewThin(bytes.Repeat([]byte{key}, 32), "https://heardlog.example/base/")
	if err != nil {
		t.Fatal(err)
	}
	return thin
}

// TestThinToken checks that a token opens what it was made for, with the key and until its time,
// and that no byte of it can be changed.
func TestThinToken(t *testing.T) {
	t.Parallel()
	thin, now := newThin(t, 1), time.UnixMilli(1780000000000)
	token := thin.Token("0a1b:9:103", "ep_1", now.Add(time.Hour))
	for _, at := range []time.Time{now, now.Add(time.Hour - time.Millisecond), now.Add(-1000 * time.Hour)} {
		event, endpoint, _, err := thin.Open(token, at)
		if err != nil || event != "0a1b:9:103" || endpoint != "ep_1" {
			t.Errorf("at %s: %q %q %v", at, event, endpoint, err)
		}
	}
	if _, _, _, err := thin.Open(token, now.Add(time.Hour)); !fault.Is(err, fault.Stopped) {
		t.Errorf("at its end: %v", err)
	}
	if _, _, _, err := newThin(t, 2).Open(token, now); !fault.Is(err, fault.NotFound) {
		t.Errorf("with another key: %v", err)
	}
	raw, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		t.Fatal(err)
	}
	for i := range raw {
		bad := bytes.Clone(raw)
		bad[i] ^= 1
		if _, _, _, err := thin.Open(base64.RawURLEncoding.EncodeToString(bad), now); !fault.Is(err, fault.NotFound) {
			t.Errorf("byte %d changed: %v", i, err)
		}
	}
	for _, bad := range []string{"", "x", token[:len(token)-1], token + "A", token + "=", "\n" + token, strings.Repeat("A", 1<<20)} {
		if _, _, _, err := thin.Open(bad, now); !fault.Is(err, fault.NotFound) {
			t.Errorf("%.20q: %v", bad, err)
		}
	}
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	for _, id := range []string{"n", "nn", "nnn"} { // one of which has no bits behind the last byte
		token := thin.Token(id, "ep_1", now.Add(time.Hour))
		for _, c := range letters {
			if _, _, _, err := thin.Open(token[:len(token)-1]+string(c), now); (err == nil) != (byte(c) == token[len(token)-1]) {
				t.Errorf("%d bytes, the last letter %c in place of %c: %v", len(token), c, token[len(token)-1], err)
			}
		}
	}
	// Made with the same key for something else.
	mac := hmac.New(sha256.New, bytes.Repeat([]byte{1}, 32))
	mac.Write(raw[sha256.Size:])
	if _, _, _, err := thin.Open(base64.RawURLEncoding.EncodeToString(append(mac.Sum(nil), raw[sha256.Size:]...)), now); !fault.Is(err, fault.NotFound) {
		t.Errorf("a mac that was made for something else: %v", err)
	}
}

// TestThinBody checks that the thin event is the same on each attempt, has the same envelope, and
// that its URL outlasts the schedule.
func TestThinBody(t *testing.T) {
	t.Parallel()
	thin, now := newThin(t, 1), time.UnixMilli(1780000009500)
	body := `{"sid":"a1","noticeId":"n-1","productId":17,"eventType":103,"notifyMs":1780000000123,"payload":{"agent_id":"a1","contents":["` + strings.Repeat("x", 2000) + `"],"sequence":7}}`
	d := webhook.Delivery{
		EventID: "n-1", Body: []byte(body), CreatedMS: 1780000000123, FirstDueMS: 1780000009000, Attempt: 1,
		Endpoint: webhook.Endpoint{ID: "ep_1", MaxBodyBytes: 1024, Retry: []time.Duration{5 * 24 * time.Hour, 5 * 24 * time.Hour}},
	}
	if !thin.Wanted(d) {
		t.Error("a body over the cap is sent whole")
	}
	got, err := thin.Body(d, now)
	if err != nil {
		t.Fatal(err)
	}
	d.Attempt, d.Fence = 9, 12
	if again, err := thin.Body(d, now); err != nil || !bytes.Equal(got, again) {
		t.Errorf("%v: another attempt sends %s, the first %s", err, again, got)
	}
	e, err := webhook.Decode(got)
	if err != nil {
		t.Fatal(err)
	}
	var p struct {
		Thin     bool
		FetchURL string `json:"fetch_url"`
		Expires  int64  `json:"expires_at"`
		Bytes    int
		SHA256   string
		AgentID  string `json:"agent_id"`
		Sequence int
	}
	if err := json.Unmarshal(e.Payload, &p); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(body))
	if e.SID != "a1" || e.NoticeID != "n-1" || e.EventType != 103 || e.NotifyMS != 1780000000123 || !p.Thin || p.Bytes != len(body) || p.SHA256 != hex.EncodeToString(sum[:]) || p.AgentID != "a1" || p.Sequence != 7 {
		t.Errorf("%s", got)
	}
	// Two waits of five days, with their jitter.
	if last := time.UnixMilli(d.FirstDueMS).Add(12 * 24 * time.Hour); p.Expires < last.UnixMilli() {
		t.Errorf("the URL ends at %s, the last try may be at %s", time.UnixMilli(p.Expires), last)
	}
	now = time.UnixMilli(d.FirstDueMS).Add(12 * 24 * time.Hour)
	if again, err := thin.Body(d, now); err != nil || !bytes.Equal(got, again) {
		t.Errorf("%v: the last try sends %s, the first %s", err, again, got)
	}
	token, ok := strings.CutPrefix(p.FetchURL, "https://heardlog.example/base"+webhook.FetchPath)
	if !ok {
		t.Fatalf("%s", p.FetchURL)
	}
	if event, endpoint, _, err := thin.Open(token, time.UnixMilli(p.Expires-1)); err != nil || event != "n-1" || endpoint != "ep_1" {
		t.Errorf("%q %q %v", event, endpoint, err)
	}
	d.Endpoint.MaxBodyBytes = 0
	if thin.Wanted(d) {
		t.Error("a short body is not sent whole")
	}
	d.Endpoint.Payload = webhook.PayloadThin
	if !thin.Wanted(d) {
		t.Error("an endpoint that wants thin events gets whole ones")
	}
	d.Body = []byte("no event")
	if _, err := thin.Body(d, now); err == nil {
		t.Error("a body that is no event was made thin")
	}
}

// TestThinBodyLate checks that whenever a delivery is sent, its body can still be fetched, even if
// its endpoint was disabled for weeks.
func TestThinBodyLate(t *testing.T) {
	t.Parallel()
	thin, made := newThin(t, 1), time.UnixMilli(1780000009000)
	d := webhook.Delivery{
		EventID: "n-1", Body: []byte(`{"sid":"a1","noticeId":"n-1","productId":17,"eventType":103,"notifyMs":1,"payload":{}}`), FirstDueMS: made.UnixMilli(), Endpoint: webhook.Endpoint{ID: "ep_1"},
	}
	for waited := time.Duration(0); waited < 60*24*time.Hour; waited += 5 * time.Hour {
		now := made.Add(waited)
		body, err := thin.Body(d, now)
		if err != nil {
			t.Fatal(err)
		}
		var e struct {
			Payload struct {
				Expires int64 `json:"expires_at"`
			}
		}
		if err := json.Unmarshal(body, &e); err != nil {
			t.Fatal(err)
		}
		if left := time.UnixMilli(e.Payload.Expires).Sub(now); left < 12*time.Hour || left > 8*24*time.Hour {
			t.Errorf("sent after %s the URL is good for %s", waited, left)
		}
	}
}

func TestNewThinRefuses(t *testing.T) {
	t.Parallel()
	key := make([]byte, 32)
	for _, base := range []string{"", "heardlog.example", "ftp://heardlog.example", "https://", "https://u@heardlog.example", "https://heardlog.example/?x=1"} {
		if _, err := webhook.NewThin(key, base); !fault.Is(err, fault.Invalid) {
			t.Errorf("%q: %v", base, err)
		}
	}
	if _, err := webhook.NewThin(key[:31], "https://heardlog.example"); !fault.Is(err, fault.Invalid) {
		t.Errorf("a short key: %v", err)
	}
}

func FuzzThinOpen(f *testing.F) {
	thin, err := webhook.NewThin(make([]byte, 32), "https://heardlog.example")
	if err != nil {
		f.Fatal(err)
	}
	now := time.UnixMilli(1780000000000)
	f.Add(thin.Token("n", "e", now.Add(time.Hour)))
	f.Add("")
	f.Fuzz(func(t *testing.T, token string) {
		event, endpoint, _, err := thin.Open(token, now)
		if err == nil && thin.Token(event, endpoint, now.Add(time.Hour)) != token {
			t.Errorf("%q opens %q %q", token, event, endpoint)
		}
	})
}
