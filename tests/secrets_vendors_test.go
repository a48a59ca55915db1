package tests

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/heardlog/heardlog/examples/fakellm/fake"
	"github.com/heardlog/heardlog/platform"
)

const fixtures = "../platform/testdata/"

// TestVendorSecretsStayOut sends requests of each platform with a canary in every place for a
// secret. No canary may reach the upstream, the store's files, the log, the metrics, an answer or a
// webhook.
func TestVendorSecretsStayOut(t *testing.T) {
	t.Parallel()
	needsFile(t)
	for _, name := range platform.Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			vendorSecrets(t, name)
		})
	}
}

func vendorSecrets(t *testing.T, name string) {
	t.Helper()
	r := receive(t, hookSecret)
	llm, base := upstream(t, fake.Script{Answer: "The train leaves at nine from platform two. Shall I book a seat?"})
	s := start(t, "HEARDLOG_LLM_URL="+base, "HEARDLOG_AUTO_JOIN=true", "HEARDLOG_WEBHOOK_URL="+r.url, "HEARDLOG_WEBHOOK_SECRET="+hookSecret, "HEARDLOG_LOG_LEVEL=debug")
	ear := &eavesdropper{base: s.client.Transport}
	s.client.Transport = ear
	var request struct {
		Headers map[string]string
		Body    json.RawMessage
	}
	if err := json.Unmarshal(fixture(t, "requests/"+name+".json"), &request); err != nil {
		t.Fatal(err)
	}
	var headers []string
	for k, v := range request.Headers {
		headers = append(headers, k, v)
	}
	id := s.post(v1+"/chat/completions", string(request.Body), headers...).ok(nil).header.Get("X-Heardlog-Agent")
	if a := s.agent(id); len(a.Keys) != 1 {
		t.Fatalf("%+v", a)
	}
	files, err := filepath.Glob(fixtures + "events/" + name + ".*.json")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	found := 0
	tell := func(path string) {
		for _, file := range files {
			var out recorded
			s.post(path, string(fixture(t, "events/"+filepath.Base(file))), headers...).ok(&out)
			found += len(out.Recorded)
		}
	}
	tell(v1 + "/evidence/" + name) // found by the keys in their bodies
	tell(agent(id, "/evidence/"+name))
	s.get("/metrics").ok(nil)
	s.get(agent(id, "/messages")).ok(nil)
	s.post(v1+"/leave", nil, "X-Agent-Id", id).ok(nil) // an event may have ended it
	tell(v1 + "/evidence/" + name)
	var hooks strings.Builder
	for ended := false; !ended; {
		for typ, n := range r.next(t, 1) {
			hooks.WriteString(n.body)
			ended = ended || typ == 103
		}
	}
	s.stop()
	if found == 0 {
		t.Error("no event was found to speak of the answer: the test proves nothing")
	}
	places := map[string]string{"the log": s.log.String(), "a webhook": hooks.String()}
	ear.mu.Lock()
	places["an answer"] = ear.all.String()
	ear.mu.Unlock()
	for _, up := range llm.Requests() {
		var b bytes.Buffer
		_ = up.Header.Write(&b)
		places["the upstream's request"] += b.String() + string(up.Body)
	}
	dir := storeDir(s)
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	stored := ""
	for _, f := range list {
		b, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		places["the file "+f.Name()] = string(b)
		stored += string(b)
	}
	if !strings.Contains(stored, "Shall I book a seat?") || !strings.Contains(places["the upstream's request"], "When is my train?") || !strings.Contains(places["a webhook"], id) {
		t.Error("the answer is not in the store's files, the question not upstream, or no webhook came: the test proves nothing")
	}
	for where, text := range places {
		if at := strings.Index(text, "CANARY"); at >= 0 {
			t.Errorf("%s holds a secret of the platform: …%q…", where, text[max(0, at-120):min(len(text), at+60)])
		}
	}
}

func fixture(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(fixtures + name)
	if err != nil {
		t.Fatal(err)
	}
	if !json.Valid(b) {
		t.Fatal(fmt.Errorf("%s is not JSON", name))
	}
	return b
}

// files returns the content of all files in the folder of a server's store.
func (s *server) files() string {
	s.t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(storeDir(s), func(path string, f fs.DirEntry, err error) error {
		if err != nil || f.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		all.Write(b)
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return all.String()
}

// storeDir returns the directory of a server's store.
func storeDir(s *server) string {
	for _, e := range s.env {
		if path, ok := strings.CutPrefix(e, "HEARDLOG_STORE=sqlite:"); ok {
			return filepath.Dir(path)
		}
	}
	return ""
}
