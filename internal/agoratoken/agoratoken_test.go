package agoratoken_test

import (
	"bytes"
	"compress/zlib"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"github.com/heardlog/heardlog/internal/agoratoken"
)

// fixtures are tokens that Agora's npm package agora-token 2.0.6 made.
type fixtures struct {
	AppID            string `json:"app_id"`
	Certificate      string `json:"certificate"`
	OtherCertificate string `json:"other_certificate"`
	Tokens           map[string]string
}

func load(t *testing.T) fixtures {
	t.Helper()
	b, err := os.ReadFile("testdata/tokens.json")
	if err != nil {
		t.Fatal(err)
	}
	var f fixtures
	if err := json.Unmarshal(b, &f); err != nil {
		t.Fatal(err)
	}
	return f
}

// check parses and verifies a token.
func check(token, certificate string, now time.Time) (agoratoken.Token, error) {
	t, err := agoratoken.Parse(token)
	if err != nil {
		return t, err
	}
	return t, t.Verify(certificate, now)
}

// TestTokens: tokens of Agora's own package are taken if they are for RTC and RTM.
func TestTokens(t *testing.T) {
	t.Parallel()
	f := load(t)
	issued, err := agoratoken.Parse(f.Tokens["rtc_rtm"])
	if err != nil {
		t.Fatal(err)
	}
	now := issued.Issued.Add(30 * time.Second)
	for _, tt := range []struct {
		name, certificate string
		now               time.Time
		want              error
	}{
		{"rtc_rtm", f.Certificate, now, nil},
		{"user_account", f.Certificate, now, nil},
		{"convoai", f.Certificate, now, nil},
		{"convoai", f.Certificate, now.AddDate(90, 0, 0), nil},
		{"convoai", f.Certificate, now.AddDate(100, 0, 0), agoratoken.ErrExpired},
		{"short", f.Certificate, now, nil},
		{"short", f.Certificate, now.Add(time.Minute), agoratoken.ErrExpired},
		{"short", f.OtherCertificate, now.Add(time.Minute), agoratoken.ErrSignature},
		{"short_privilege", f.Certificate, now, nil},
		{"short_privilege", f.Certificate, now.Add(time.Minute), agoratoken.ErrExpired},
		{"rtc_rtm", f.OtherCertificate, now, agoratoken.ErrSignature},
		{"rtc_rtm", "", now, agoratoken.ErrSignature},
		{"other_certificate", f.Certificate, now, agoratoken.ErrSignature},
		{"other_certificate", f.OtherCertificate, now, nil},
		{"rtc_only", f.Certificate, now, agoratoken.ErrServices},
		{"rtm_only", f.Certificate, now, agoratoken.ErrServices},
		{"chat", f.Certificate, now, agoratoken.ErrServices},
	} {
		token := f.Tokens[tt.name]
		got, err := check(token, tt.certificate, tt.now)
		if token == "" || !agoratoken.Is(token) || !errors.Is(err, tt.want) {
			t.Errorf("%s at %v: %v, want %v", tt.name, tt.now, err, tt.want)
		}
		if got.AppID != f.AppID || tt.want == nil && got.Channel != "room-1" {
			t.Errorf("%s: app %q, channel %q", tt.name, got.AppID, got.Channel)
		}
	}
	if got, _ := agoratoken.Parse(f.Tokens["user_account"]); got.UserID != "anna" {
		t.Errorf("user %q", got.UserID)
	}
}

// TestChanged: no token is valid in which a byte was changed, cut off or added in front.
func TestChanged(t *testing.T) {
	t.Parallel()
	f := load(t)
	whole := f.Tokens["convoai"]
	z, err := base64.StdEncoding.DecodeString(whole[3:])
	if err != nil {
		t.Fatal(err)
	}
	r, err := zlib.NewReader(bytes.NewReader(z))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	good, err := check(pack(plain), f.Certificate, time.Unix(1_800_000_000, 0))
	if err != nil {
		t.Fatal(err)
	}
	refused := func(what string, i int, b []byte) {
		t.Helper()
		if _, err := check(pack(b), f.Certificate, good.Issued); err == nil {
			t.Errorf("%s at byte %d is not noticed", what, i)
		}
	}
	for i := range plain {
		for _, bit := range []byte{1, 0x80} {
			b := bytes.Clone(plain)
			b[i] ^= bit
			refused("a change", i, b)
		}
		refused("the end", i, plain[:i])
	}
	refused("a byte", 0, append([]byte{0}, plain...))
	refused("more bytes", len(plain), append(bytes.Clone(plain), 0))
}

// pack returns fields as a token.
func pack(plain []byte) string {
	var b bytes.Buffer
	w := zlib.NewWriter(&b)
	_, _ = w.Write(plain)
	_ = w.Close()
	return "007" + base64.StdEncoding.EncodeToString(b.Bytes())
}

// TestNoTokens: what is no token is refused, and expands to little.
func TestNoTokens(t *testing.T) {
	t.Parallel()
	f := load(t)
	for name, text := range map[string]string{
		"nothing":         "",
		"the prefix":      "007",
		"another version": "006" + f.Tokens["rtc_rtm"][3:],
		"no base64":       "007!!!",
		"not compressed":  "007" + base64.StdEncoding.EncodeToString([]byte("hello")),
		"a cut token":     f.Tokens["rtc_rtm"][:60],
		"an empty one":    pack(nil),
		"a huge one":      pack(make([]byte, 10<<20)),
		"many services":   pack(append(make([]byte, 16), 0xff, 0xff)),
	} {
		if _, err := agoratoken.Parse(text); !errors.Is(err, agoratoken.ErrFormat) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
