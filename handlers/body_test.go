package handlers_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// TestDepthCountsNoStrings checks that brackets in strings do not count as nesting, whatever quotes
// and backslashes are beside them, and that those after strings do.
func TestDepthCountsNoStrings(t *testing.T) {
	t.Parallel()
	srv, _ := newAPI(t, nil)
	nested := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	many := strings.Repeat("[{", 100)
	for name, tt := range map[string]struct {
		body string
		deep bool
	}{
		"at the bound":               {`{"x":` + nested(63) + `}`, false},
		"above it":                   {`{"x":` + nested(64) + `}`, true},
		"in a string":                {`{"x":"` + many + `"}`, false},
		"in a name":                  {`{"` + many + `":1}`, false},
		"behind a quote":             {`{"x":"\"` + many + `"}`, false},
		"behind backslash and quote": {`{"x":"\\\"` + many + `\\"}`, false},
		"behind a string":            {`{"x":"\\","y":` + nested(64) + `}`, true},
		"behind an empty string":     {`{"":"","y":` + nested(64) + `}`, true},
		"behind a quote in a string": {`{"x":"a\"b","y":` + nested(64) + `}`, true},
		"not closed":                 {`{"x":"` + many, false},
		"longer than is trusted":     {`{"x":"` + strings.Repeat(many, 1000) + `"}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, stated := range []bool{true, false} {
				var body io.Reader = strings.NewReader(tt.body)
				if !stated {
					// Its length is not known, so that it goes in chunks.
					body = io.MultiReader(body)
				}
				req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+"/v1/agents", body)
				if err != nil {
					t.Fatal(err)
				}
				res, err := srv.Client().Do(req)
				if err != nil {
					t.Fatal(err)
				}
				text, err := io.ReadAll(res.Body)
				_ = res.Body.Close()
				if err != nil || res.StatusCode != http.StatusBadRequest || strings.Contains(string(text), "nests deeper") != tt.deep {
					t.Errorf("length stated %v: %d %.300s %v", stated, res.StatusCode, text, err)
				}
			}
		})
	}
}
