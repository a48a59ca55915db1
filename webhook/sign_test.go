package webhook_test

import (
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/secret"
	"github.com/heardlog/heardlog/webhook"
	"github.com/heardlog/heardlog/webhook/receive"
)

const whsec = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// TestSignAgora checks signatures against published examples.
func TestSignAgora(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ body, v1, v2 string }{
		{
			`{"noticeId":"n-1","productId":17,"eventType":101,"notifyMs":1700000000000,"payload":{}}`,
			"ee9dbccf230904a9ed57f0f885445c70b1fc2ca6", "8ae510b41a1c941130d83bc41f5db3de3c8598b702266d48d8958ef8585a860f",
		},
		{
			`{"eventMs":1560408533119,"eventType":10,"noticeId":"4eb720f0-8da7-11e9-a43e-53f411c2761f","notifyMs":1560408533119,"payload":{"a":"1","b":2},"productId":1}`,
			"033c62f40f687675f17f0f41f91a40c71c0f134c", "6d3320c60b11101395b7fc8f9068748808a0aa1bfa064438e39d1bc2c7d74d99",
		},
	} {
		if v1, v2 := webhook.SignAgora("secret", []byte(tt.body)); v1 != tt.v1 || v2 != tt.v2 {
			t.Errorf("%s: %s %s", tt.body, v1, v2)
		}
		h := http.Header{"Agora-Signature-V2": {tt.v2}}
		if err := webhook.VerifyAgora("secret", h, []byte(tt.body)); err != nil {
			t.Error(err)
		}
	}
}

// TestSignStandard checks the test vector that the Standard Webhooks libraries share.
func TestSignStandard(t *testing.T) {
	t.Parallel()
	got, err := webhook.SignStandard(whsec, "msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`))
	if want := "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="; err != nil || got != want {
		t.Errorf("%s, %v, want %s", got, err, want)
	}
}

// TestStandardBothWays checks that the independent library accepts Heardlog's signatures, of both
// kinds of secret, and the other way round.
func TestStandardBothWays(t *testing.T) {
	t.Parallel()
	body, now := []byte(`{"text":"né 😀"}`), time.Now()
	foreign := map[secret.String]*standardwebhooks.Webhook{}
	foreign[whsec], _ = standardwebhooks.NewWebhook(whsec)
	foreign["plain secret"], _ = standardwebhooks.NewWebhookRaw([]byte("plain secret"))
	for secret, lib := range foreign {
		ours, err := webhook.SignStandard(secret, "n:1", now, body)
		if err != nil {
			t.Fatal(err)
		}
		if err := lib.Verify(body, standardHeader("n:1", now, ours)); err != nil {
			t.Errorf("the library refuses our signature: %v", err)
		}
		theirs, err := lib.Sign("n:1", now, body)
		if err != nil {
			t.Fatal(err)
		}
		if err := verifyStandard(secret, standardHeader("n:1", now, theirs), body, now); err != nil {
			t.Errorf("we refuse the library's signature: %v", err)
		}
	}
}

// verifyStandard checks a request's Standard Webhooks signature as a receiver does, at a time.
func verifyStandard(secret secret.String, h http.Header, body []byte, now time.Time) error {
	v, err := receive.NewVerifier(secret.Reveal())
	if err != nil {
		return err
	}
	v.Now = func() time.Time { return now }
	return v.Verify(h, body)
}

func standardHeader(id string, at time.Time, sig string) http.Header {
	h := http.Header{}
	h.Set(webhook.HeaderID, id)
	h.Set(webhook.HeaderTimestamp, strconv.FormatInt(at.Unix(), 10))
	h.Set(webhook.HeaderSignature, sig)
	return h
}

// wantError checks an error's code and text; want "" is no error.
func wantError(t *testing.T, err error, code fault.Code, want string) {
	t.Helper()
	if want == "" {
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	if err == nil || !strings.Contains(err.Error(), want) || fault.CodeOf(err) != code {
		t.Fatalf("%v (%s), want a text with %q (%s)", err, fault.CodeOf(err), want, code)
	}
}

func TestVerifyAgoraRefuses(t *testing.T) {
	t.Parallel()
	body := []byte(`{"a":1}`)
	_, v2 := webhook.SignAgora("s", body)
	for name, tt := range map[string]struct {
		h      http.Header
		secret secret.String
		want   string
	}{
		"right":            {http.Header{"Agora-Signature-V2": {v2}}, "s", ""},
		"upper case":       {http.Header{"Agora-Signature-V2": {strings.ToUpper(v2)}}, "s", ""},
		"missing":          {http.Header{}, "s", "missing"},
		"SHA-1 alone":      {http.Header{"Agora-Signature": {v2}}, "s", "missing"},
		"of other secret":  {http.Header{"Agora-Signature-V2": {v2}}, "t", "does not match"},
		"cut off":          {http.Header{"Agora-Signature-V2": {v2[:63]}}, "s", "does not match"},
		"with one changed": {http.Header{"Agora-Signature-V2": {"0" + v2[1:]}}, "s", "does not match"},
	} {
		if name == "with one changed" && v2[0] == '0' {
			t.Fatal("choose another body")
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wantError(t, webhook.VerifyAgora(tt.secret, tt.h, body), fault.Unauthenticated, tt.want)
		})
	}
}

func TestParseSecret(t *testing.T) {
	t.Parallel()
	key := func(n int) string { return "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, n)) }
	for _, tt := range []struct{ name, raw, want string }{
		{"standard", whsec, ""},
		{"shortest key", key(24), ""},
		{"longest key", key(64), ""},
		{"text", "secret", ""},
		{"text of other scripts", "пароль и 密码", ""},
		{"empty", "", "empty"},
		{"pasted with the version", "v1," + whsec, `"v1,"`},
		{"pasted with the other version", "v1a," + whsec, `"v1,"`},
		{"line break", "hunter2\n", "white space"},
		{"tab inside", "hunter2\thunter2", "control"},
		{"not UTF-8", "hunter2\xff", "control"},
		{"must have base64", "whsec_hunter2!", "must have base64"},
		{"short key", key(23), "24 to 64 bytes after whsec_, not 23"},
		{"long key", key(65), "24 to 64 bytes after whsec_, not 65"},
		{"key pair", "whsk_hunter2", "key pair"},
		{"too long", strings.Repeat("hunter2", 40), "at most 256"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := webhook.ParseSecret(tt.raw)
			if tt.want == "" {
				if err != nil || got.Reveal() != tt.raw {
					t.Fatalf("%q, %v", got.Reveal(), err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("%v, want a text with %q", err, tt.want)
			}
			if strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "MfKQ9r8") {
				t.Errorf("%q repeats the secret", err)
			}
		})
	}
}
