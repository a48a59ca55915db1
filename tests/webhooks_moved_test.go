package tests

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

// TestMovedEndpoint: changing an endpoint's URL cannot reveal its secrets: another host gets none
// of the stored headers and credentials.
func TestMovedEndpoint(t *testing.T) {
	t.Parallel()
	s := start(t)
	old, other := newHook(t), newHook(t)
	elsewhere, err := json.Marshal(other.url)
	if err != nil {
		t.Fatal(err)
	}
	to := `"url":` + string(elsewhere)
	e := s.hookTo(old, map[string]any{"headers": map[string]string{"X-Api-Key": "k3y-of-the-old"}, "auth": map[string]string{"bearer": "t0ken-of-the-old"}})
	path := hooks + "/endpoints/" + e.ID
	for body, want := range map[string][2]string{
		`{` + to + `}`: {"auth", "another"}, `{` + to + `,"auth":null}`: {"headers", "another"}, `{` + to + `,"headers":{},"auth":{"bearer":"[secret]"}}`: {"auth.bearer", "stands for"},
		`{` + to + `,"headers":{"x-api-key":"[secret]"},"auth":null}`: {"headers.x-api-key", "stands for"},
	} {
		for _, method := range []string{"PATCH", "PUT"} {
			if method == "PUT" && want[1] == "another" {
				continue // what it does not name it takes away
			}
			s.do(method, path, body).refused(http.StatusBadRequest, "InvalidFieldValue", want[0], want[1])
		}
	}
	s.join("before", nil)
	if got := old.next(t); got.header.Get("X-Api-Key") != "k3y-of-the-old" {
		t.Errorf("%v", got.header)
	}
	// The same host.
	s.do("PATCH", path, `{"url":"`+strings.Replace(old.url, "http:", "HTTP:", 1)+`/other/path?x=1","headers":{"X-Api-Key":"[secret]"}}`).ok(nil)
	s.do("PATCH", path, `{`+to+`,"headers":{"X-Other":"of-the-new"},"auth":null}`).ok(nil)
	s.join("after", nil)
	got := other.next(t)
	if got.header.Get("X-Other") != "of-the-new" || got.header.Get("X-Api-Key") != "" || got.header.Get("Authorization") != "" {
		t.Errorf("%v", got.header)
	}
	s.do("PUT", path, `{"url":"`+old.url+`"}`).ok(nil)
	s.join("put", nil)
	if got := old.next(t); got.header.Get("X-Other") != "" {
		t.Errorf("%v", got.header)
	}
}
