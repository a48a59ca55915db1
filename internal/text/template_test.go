package text_test

import (
	"testing"

	"github.com/heardlog/heardlog/internal/text"
)

func TestFill(t *testing.T) {
	t.Parallel()
	vars := map[string]string{"who": "Ann", "loop": "{{who}}", "": "no"}
	for in, want := range map[string]string{
		"Hi {{who}}!": "Hi Ann!", "{{ who }}": "Ann", "{{loop}}": "{{who}}", "{{none}} {{who}}": "{{none}} Ann", "{{who": "{{who", "}}{{who}}": "}}Ann",
		"{{{{who}}": "{{Ann", "": "", "{{who}}{{who}}": "AnnAnn", "{{ {{who}} }}": "{{ Ann }}", "{{{who}}}": "{{{who}}}", "{{who}} {{": "Ann {{",
	} {
		if got := text.Fill(in, vars); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}
