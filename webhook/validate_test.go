package webhook_test

import (
	"testing"

	"github.com/heardlog/heardlog/webhook"
)

func TestSameOrigin(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		a, b string
		want bool
	}{
		{"https://a.example/x", "https://A.example:443/y?z", true},
		{"http://a.example", "http://a.example.:80/", true},
		{"https://a.example", "http://a.example", false},
		{"https://a.example", "https://a.example:8443", false},
		{"https://a.example", "https://a.example.net", false},
		{"https://a.example", "https://b.a.example", false},
		{"https://[::1]:1/", "https://[::1]:2/", false},
		{"https://a.example", "", false},
		{"https://a.example", "::", false},
	} {
		if got := webhook.SameOrigin(tt.a, tt.b); got != tt.want {
			t.Errorf("%s and %s: %t", tt.a, tt.b, got)
		}
	}
}
