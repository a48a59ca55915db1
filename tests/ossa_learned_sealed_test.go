package tests

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"testing"
)

// TestLearnedSealed: entries, imported documents and patterns are encrypted on disk, and are erased
// with the project, the half-life of its patterns too.
func TestLearnedSealed(t *testing.T) {
	needsFile(t)
	t.Parallel()
	s := start(t, "HEARDLOG_SECRET_KEY=a long enough secret")
	s.do(http.MethodPut, modelsPath+"/shop", learnedModel).ok(nil)
	s.joinWith("first", "shop", "").joined()
	s.do(http.MethodPut, knowledgePath+"/shop/entries/e", `{"content":"CANARY one"}`).ok(nil)
	s.do(http.MethodPut, v1+"/patterns/p", `{"type":"tool_usage","content":"CANARY two"}`).ok(nil)
	s.imports("shop", "d", "text", "CANARY three")
	files, err := filepath.Glob(filepath.Join(storeDir(s), "*"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		if b, err := os.ReadFile(f); err == nil && bytes.Contains(b, []byte("CANARY")) {
			t.Errorf("%s holds a text in clear", f)
		}
	}
	s.do(http.MethodDelete, "/v1/projects/default?confirm=default", nil).ok(nil)
	s.get(knowledgePath+"/shop").refused(http.StatusNotFound, "TaskNotFound")
	s.get(v1+"/patterns/p").refused(http.StatusNotFound, "TaskNotFound")
	var p struct {
		HalfLife int `json:"half_life_days"`
	}
	s.do(http.MethodPut, v1+"/patterns/p", `{"type":"tool_usage","content":"x"}`).ok(nil)
	if s.get(v1 + "/patterns/p").ok(&p); p.HalfLife != 30 {
		t.Errorf("%+v", p)
	}
}
