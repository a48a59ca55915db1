package guard_test

import (
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/guard"
)

func TestCheckURL(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, raw, want string }{ // want: substring, "" = valid
		{"https", "https://example.com/hook?token=1", ""},
		{"http and port", "http://example.com:8080", ""},
		{"upper case scheme", "HTTPS://example.com/", ""},
		{"IPv6", "http://[2606:4700::1111]:8443/x", ""},
		{"IDN", "https://bücher.example/", ""},
		{"trailing dot", "https://example.com./", ""},
		{"longest", "https://example.com/" + strings.Repeat("x", guard.MaxURL-20), ""},
		{"too long", "https://example.com/" + strings.Repeat("x", guard.MaxURL-19), "at most 2048"},
		{"empty", "", "not empty"},
		{"no scheme", "example.com/hook", "http:// or https://"},
		{"scheme left out", "//example.com/hook", "http:// or https://"},
		{"file", "file:///etc/passwd", "http:// or https://"},
		{"gopher", "gopher://example.com", "http:// or https://"},
		{"script", "javascript:alert(1)", "http:// or https://"},
		{"opaque", "http:example.com", "no host"},
		{"no host", "http:///hook", "no host"},
		{"port only", "http://:80/", "no host"},
		{"user", "https://bob@example.com/", "user name"},
		{"user and password", "https://bob:hunter2@example.com/", "user name"},
		{"empty user", "https://@example.com/", "user name"},
		{"zone", "http://[fe80::1%25eth0]/", "network interface"},
		{"port 0", "http://example.com:0/", "1 to 65535"},
		{"port too high", "http://example.com:65536/", "1 to 65535"},
		{"port not a number", "http://example.com:hunter2/", "cannot be read"},
		{"ssh", "http://example.com:22/", "another protocol"},
		{"smtp", "http://example.com:25/", "another protocol"},
		{"white space in front", " https://example.com/", "white space"},
		{"line break", "https://example.com/\r\nX: y", "cannot be read"},
		{"space in the host", "http://exa mple.com/", "cannot be read"},
		{"NUL", "http://exam\x00ple.com/", "cannot be read"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			err := guard.New(guard.Options{}).CheckURL(tt.raw)
			if tt.want == "" {
				if err != nil {
					t.Fatalf("%v, want it valid", err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("%v, want a text with %q", err, tt.want)
			}
			if c := fault.CodeOf(err); c != fault.Invalid && c != fault.Missing {
				t.Errorf("code %s", c)
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%q repeats the secret", err)
			}
		})
	}
}

func TestGuardCheckURL(t *testing.T) {
	t.Parallel()
	g := guard.New(guard.Options{})
	for _, raw := range []string{"http://169.254.169.254/latest", "http://127.0.0.1.:80/", "https://[::1]/", "http://[::ffff:10.0.0.1]/"} {
		if _, ok := errors.AsType[*guard.Blocked](g.CheckURL(raw)); !ok {
			t.Errorf("%s: %v, want it blocked", raw, g.CheckURL(raw))
		}
	}
	if err := g.CheckURL("https://localhost/"); err != nil {
		t.Errorf("a name is judged when it is dialled: %v", err)
	}
	if err := guard.New(guard.Options{AllowLoopback: true}).CheckURL("http://127.0.0.1:9090/"); err != nil {
		t.Error(err)
	}
	if err := g.CheckURL("ftp://8.8.8.8/"); fault.CodeOf(err) != fault.Invalid {
		t.Errorf("ftp: %v", err)
	}
}

func FuzzCheckURL(f *testing.F) {
	for _, s := range []string{"https://example.com/a?b#c", "http://u:p@h", "http://[fe80::1%25e]:1/", "http://h:22", "x:y"} {
		f.Add(s)
	}
	g := guard.New(guard.Options{})
	f.Fuzz(func(t *testing.T, raw string) {
		if g.CheckURL(raw) != nil {
			return
		}
		u, err := url.Parse(raw)
		if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" || u.User != nil || len(raw) > guard.MaxURL {
			t.Errorf("%q passed: %v, %+v", raw, err, u)
		}
	})
}
