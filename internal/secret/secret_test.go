package secret_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/heardlog/heardlog/internal/secret"
)

// TestString prints and encodes a secret in every usual way; none may show the value.
func TestString(t *testing.T) {
	t.Parallel()
	const value = "hunter2"
	s := secret.String(value)
	encoded, err := json.Marshal(map[string]any{"value": s, "in": struct{ Key secret.String }{s}})
	if err != nil {
		t.Fatal(err)
	}
	for name, got := range map[string]string{
		//lint:ignore S1025 the verb is what is tested
		"%s": fmt.Sprintf("%s", s), "%v": fmt.Sprintf("%v", s), "%+v": fmt.Sprintf("%+v", struct{ S secret.String }{s}),
		"%#v": fmt.Sprintf("%#v", s), "%q": fmt.Sprintf("%q", s), "json": string(encoded),
	} {
		if strings.Contains(got, value) || !strings.Contains(got, "[secret]") {
			t.Errorf("%s printed %q", name, got)
		}
	}
	if got := s.Reveal(); got != value {
		t.Errorf("Reveal returned %q", got)
	}
}
