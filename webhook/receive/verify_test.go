package receive_test

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/heardlog/heardlog/internal/secret"
	"github.com/heardlog/heardlog/webhook"
	"github.com/heardlog/heardlog/webhook/receive"
)

const (
	whsec = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	plain = "my plain secret"
)

// at is the time of all these signatures.
var at = time.Unix(1780000000, 0)

// signed gives the headers of a body that the secrets sign, by the sender's own functions.
func signed(t *testing.T, id string, body []byte, secrets ...string) http.Header {
	t.Helper()
	var list []string
	for _, s := range secrets {
		sig, err := webhook.SignStandard(secret.String(s), id, at, body)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, sig)
	}
	h := http.Header{}
	h.Set("webhook-id", id)
	h.Set("webhook-timestamp", strconv.FormatInt(at.Unix(), 10))
	h.Set("webhook-signature", strings.Join(list, " "))
	return h
}

func verifier(t *testing.T, secrets ...string) *receive.Verifier {
	t.Helper()
	v, err := receive.NewVerifier(secrets...)
	if err != nil {
		t.Fatal(err)
	}
	v.Now = func() time.Time { return at }
	return v
}

func TestVerify(t *testing.T) {
	t.Parallel()
	body := []byte(`{"noticeId":"n-1","productId":17,"eventType":101,"notifyMs":1700000000000,"payload":{}}`)
	with := func(h http.Header, name, value string) http.Header {
		h = h.Clone()
		h.Set(name, value)
		return h
	}
	good := signed(t, "n-1", body, whsec)
	_, agora := webhook.SignAgora(secret.String(plain), body)
	for _, tt := range []struct {
		name    string
		h       http.Header
		secrets []string
		agora   bool
		ok      bool
	}{
		{"whsec", good, []string{whsec}, false, true},
		{"plain text", signed(t, "n-1", body, plain), []string{plain}, false, true},
		{"old one of two, sender has the old", signed(t, "n-1", body, plain), []string{plain, whsec}, false, true},
		{"new one of two, sender has the new", good, []string{plain, whsec}, false, true},
		{"sender signs with both, we have one", signed(t, "n-1", body, plain, whsec), []string{whsec}, false, true},
		{"another secret", good, []string{plain}, false, false},
		{"no signature", http.Header{}, []string{whsec}, false, false},
		{"another id", with(good, "webhook-id", "n-2"), []string{whsec}, false, false},
		{"no id", with(good, "webhook-id", ""), []string{whsec}, false, false},
		{"another time", with(good, "webhook-timestamp", "1780000001"), []string{whsec}, false, false},
		{"time that is none", with(good, "webhook-timestamp", "+1780000000"), []string{whsec}, false, false},
		{"version that is not known", with(good, "webhook-signature", strings.Replace(good.Get("webhook-signature"), "v1,", "v2,", 1)), []string{whsec}, false, false},
		{"good one behind 32 others", with(good, "webhook-signature", strings.Repeat("v1,AAAA ", 32)+good.Get("webhook-signature")), []string{whsec}, false, false},
		{"Agora alone, wanted", http.Header{"Agora-Signature-V2": {agora}}, []string{whsec, plain}, true, true},
		{"Agora alone, in upper case", http.Header{"Agora-Signature-V2": {strings.ToUpper(agora)}}, []string{plain}, true, true},
		{"Agora alone, not wanted", http.Header{"Agora-Signature-V2": {agora}}, []string{plain}, false, false},
		{"Agora alone, another secret", http.Header{"Agora-Signature-V2": {agora}}, []string{whsec}, true, false},
		{"Agora's first kind alone", http.Header{"Agora-Signature": {"ee9dbccf230904a9ed57f0f885445c70b1fc2ca6"}}, []string{"secret"}, true, false},
		{"Agora's vector", http.Header{"Agora-Signature-V2": {"8ae510b41a1c941130d83bc41f5db3de3c8598b702266d48d8958ef8585a860f"}}, []string{"secret"}, true, true},
		{"a good Agora does not save a bad one", with(with(good, "Agora-Signature-V2", agora), "webhook-id", "x"), []string{plain, whsec}, true, false},
		{"a bad Agora does not spoil a good one", with(good, "Agora-Signature-V2", "00"), []string{whsec}, true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			v := verifier(t, tt.secrets...)
			v.Agora = tt.agora
			err := v.Verify(tt.h, body)
			if (err == nil) != tt.ok || err != nil && !errors.Is(err, receive.ErrSignature) {
				t.Errorf("Verify: %v, want ok=%v", err, tt.ok)
			}
			if v.Verify(tt.h, append([]byte(" "), body...)) == nil {
				t.Error("another body passes")
			}
		})
	}
}

func TestVerifyTolerance(t *testing.T) {
	t.Parallel()
	body := []byte("{}")
	h := signed(t, "n", body, whsec)
	for _, tt := range []struct {
		off, tolerance time.Duration
		ok             bool
	}{
		{5 * time.Minute, 0, true}, {-5 * time.Minute, 0, true}, {301 * time.Second, 0, false}, {-301 * time.Second, 0, false},
		{time.Hour, time.Hour, true}, {time.Hour + time.Second, time.Hour, false},
	} {
		v := verifier(t, whsec)
		v.Tolerance, v.Now = tt.tolerance, func() time.Time { return at.Add(tt.off) }
		if err := v.Verify(h, body); (err == nil) != tt.ok {
			t.Errorf("%v off with %v: %v", tt.off, tt.tolerance, err)
		}
	}
	// Milliseconds, and times so far off that a difference of two overflows.
	for _, stamp := range []string{"1780000000000", "9223372036854775807", "-9223372036854775808"} {
		h.Set("webhook-timestamp", stamp)
		if verifier(t, whsec).Verify(h, body) == nil {
			t.Errorf("the time %s passes", stamp)
		}
	}
}

func TestVerifyEd25519(t *testing.T) {
	t.Parallel()
	private := ed25519.NewKeyFromSeed([]byte("a seed of thirty-two bytes, yes!"))
	public, ok := private.Public().(ed25519.PublicKey)
	if !ok {
		t.Fatal("no public key")
	}
	body := []byte("{}")
	h := http.Header{}
	h.Set("webhook-id", "n")
	h.Set("webhook-timestamp", "1780000000")
	h.Set("webhook-signature", "v1a,"+base64.StdEncoding.EncodeToString(ed25519.Sign(private, []byte("n.1780000000.{}"))))
	v := verifier(t, "whpk_"+base64.StdEncoding.EncodeToString(public))
	if err := v.Verify(h, body); err != nil {
		t.Error(err)
	}
	if v.Verify(h, []byte("[]")) == nil || verifier(t, whsec).Verify(h, body) == nil {
		t.Error("another body or secret passes")
	}
	h.Set("webhook-signature", "v1a,%%%")
	if v.Verify(h, body) == nil {
		t.Error("a signature that is no base64 passes")
	}
}

// No error shows a secret.
func TestNewVerifierRefuses(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"", " hunter2", "hunter2\n", "whsec_hunter2", "v1,whsec_hunter2", "whpk_hunter2", "whsk_hunter2", "whsec_aHVudGVyMg=="} {
		_, err := receive.NewVerifier(plain, s)
		if err == nil || !strings.Contains(err.Error(), "secret 2") || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %v", s, err)
		}
	}
	if _, err := receive.NewVerifier(); err == nil {
		t.Error("a verifier without secrets")
	}
}

// signature gives a signature that is right but for its time, which may be any text.
func signature(t *testing.T, secret, id, stamp string, body []byte) string {
	t.Helper()
	key := []byte(secret)
	if text, ok := strings.CutPrefix(secret, "whsec_"); ok {
		var err error
		if key, err = base64.StdEncoding.DecodeString(text); err != nil {
			t.Fatal(err)
		}
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id + "." + stamp + "."))
	mac.Write(body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// FuzzVerify: nobody guesses a signature.
func FuzzVerify(f *testing.F) {
	f.Add("n", "1780000000", "v1,abc", []byte("{}"))
	f.Add("n", "-1", " v1, v1,,", []byte{})
	f.Fuzz(func(t *testing.T, id, stamp, sig string, body []byte) {
		v, err := receive.NewVerifier("a secret nobody guesses")
		if err != nil {
			t.Fatal(err)
		}
		v.Now = func() time.Time { return at }
		h := http.Header{"Webhook-Id": {id}, "Webhook-Timestamp": {stamp}, "Webhook-Signature": {sig}}
		if v.Verify(h, body) == nil {
			t.Errorf("verified %q %q %q", id, stamp, sig)
		}
	})
}
