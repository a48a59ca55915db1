package tests

import (
	"bytes"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/examples/fakellm/fake"
	"github.com/heardlog/heardlog/internal/blob"
	"github.com/heardlog/heardlog/store/archive"
	"github.com/heardlog/heardlog/store/export"
	"github.com/heardlog/heardlog/store/postgres"
	"github.com/heardlog/heardlog/store/sqlite"
)

// archivedCall is an ended call of a server with a hook, and what was read of it.
type archivedCall struct {
	*server
	hook *hook
	dir  string // of the archive
	id   string
	read map[string]string // by path
}

// readers are the reads of a call that are the same wherever its messages are.
func readers(id string) []string {
	return []string{
		agent(id), agent(id, "/history"), agent(id, "/history?limit=2"), agent(id, "/messages"), agent(id, "/messages?limit=2"), agent(id, "/messages?after_seq=2&limit=3"), agent(id, "/turns"),
		agent(id, "/turns/0/requests"), agent(id, "/turns/1/requests"), agent(id, "/snapshot"),
		agora + "/agents/" + id + "/history", agora + "/agents/" + id + "/turns",
		v1 + "/agents", v1 + "/users", v1 + "/users/ann/export", v1 + "/overview",
		hooks + "/messages", hooks + "/deliveries",
		v1 + `/memories/search {"user_id":"ann","query":"ferry"}`, agent(id, "/recall") + ` {"query":"ferry"}`, v1 + `/recall {"user_id":"ann","query":"platform","deadline_ms":10000}`,
	}
}

// archiveCall makes a call with three turns, one cut, and ends it. Its server has no archive yet.
func archiveCall(t *testing.T, env ...string) *archivedCall {
	t.Helper()
	_, base := upstream(t, fake.Script{Answer: "The ferry leaves at nine from platform two."})
	c := &archivedCall{server: start(t, append([]string{"HEARDLOG_LLM_URL=" + base}, env...)...), hook: newHook(t), dir: filepath.Join(t.TempDir(), "archive")}
	c.hookTo(c.hook, nil)
	c.id = c.join("n", caller("ann"))
	c.chat(agent(c.id, "/chat/completions"), "When does the ferry leave?", true).ok(nil)
	c.chat(agent(c.id, "/chat/completions"), "And from where?", false).ok(nil)
	c.post(agent(c.id, "/interrupt"), map[string]any{"heard": "The ferry leaves", "turn_id": 1}).ok(nil)
	c.say(c.id, user("Thank you."), assistant("You are welcome."))
	c.post(agent(c.id, "/leave"), nil).ok(nil)
	waitFor(t, "all deliveries", func() bool {
		return bytes.Contains(c.get(hooks+"/deliveries?state=delivered").ok(nil).body, []byte(`"agent.history"`)) && !strings.Contains(string(c.get(hooks+"/deliveries?state=pending").ok(nil).body), c.id)
	})
	c.readAll()
	return c
}

// readAll reads all that the API shows of the call.
func (c *archivedCall) readAll() {
	c.t.Helper()
	c.read = map[string]string{}
	for _, path := range readers(c.id) {
		c.read[path] = c.text(path)
	}
}

// passing is what differs between two reads: how long one took, and its time.
var passing = regexp.MustCompile(`"(took_ms|elapsed_ms)":[0-9.]+|"(up_to|until)":"[^"]*"`)

// text returns the answer of a read: of a path, or of a path with a body.
func (c *archivedCall) text(read string) string {
	c.t.Helper()
	path, body, post := strings.Cut(read, " ")
	got := c.get
	if post {
		got = func(path string, headers ...string) answer { return c.post(path, body, headers...) }
	}
	return passing.ReplaceAllString(string(got(path).ok(nil).body), "")
}

// archive starts the server again and waits until the call is in the archive.
func (c *archivedCall) archive(env ...string) {
	c.t.Helper()
	c.server = c.again(append([]string{"HEARDLOG_ARCHIVE=" + c.dir, "HEARDLOG_ARCHIVE_AFTER=1ms"}, env...)...)
	waitFor(c.t.(*testing.T), "the move", func() bool { return c.metric("heardlog_archive_calls_total") == "1" })
}

// objects returns the names of all objects.
func (c *archivedCall) objects() (list []string) {
	c.t.Helper()
	err := filepath.WalkDir(c.dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			list = append(list, path)
		}
		return err
	})
	if err != nil {
		c.t.Fatal(err)
	}
	return list
}

// same demands that everything reads as before.
func (c *archivedCall) same() {
	c.t.Helper()
	for _, path := range slices.Sorted(maps.Keys(c.read)) {
		if diff := cmp.Diff(c.read[path], c.text(path)); diff != "" {
			c.t.Errorf("%s reads otherwise: %s", path, diff)
		}
	}
}

// exported returns an export of everything, with all secrets.
func (c *archivedCall) exported() string {
	c.t.Helper()
	var from archive.Reader
	var err error
	url := ""
	for _, e := range c.env {
		if v, ok := strings.CutPrefix(e, "HEARDLOG_STORE="); ok {
			url = v
		}
	}
	if path, ok := strings.CutPrefix(url, "sqlite:"); ok {
		from, err = sqlite.OpenReader(sqlite.Options{Path: path})
	} else {
		from, err = postgres.OpenReader(c.t.Context(), postgres.Options{URL: url})
	}
	if err != nil {
		c.t.Fatal(err)
	}
	defer from.Close()
	place, err := blob.Open(c.dir, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	var out bytes.Buffer
	if _, err := export.Write(c.t.Context(), &out, archive.Source{Reader: from, Archive: archive.New(place)}, export.Scope{Project: "default", Agent: c.id}, true, nil); err != nil {
		c.t.Fatal(err)
	}
	return out.String()
}

// TestArchive: an archived call reads as before, is found, and its events are sent again.
func TestArchive(t *testing.T) {
	t.Parallel()
	c := archiveCall(t)
	before := c.exported()
	c.archive()
	if diff := cmp.Diff(before, c.exported()); diff != "" {
		t.Errorf("the export differs: %s", diff)
	}
	if got := c.objects(); len(got) != 1 {
		t.Fatalf("objects: %q", got)
	}
	c.same()
	c.wantRecalled("archived", "ann", "ferry", "When does the ferry leave?", "The ferry leaves at nine from platform two.", "The ferry leaves")
	var list struct{ Deliveries []delivery }
	c.get(hooks + "/deliveries").ok(&list)
	sent := map[string]string{}
	for range list.Deliveries {
		m := c.hook.next(t)
		sent[m.NoticeID] = string(m.body)
	}
	for _, d := range list.Deliveries {
		var again delivery
		c.post(hooks+"/deliveries/"+d.ID+"/replay", nil).is(http.StatusAccepted, &again)
		if m := c.hook.next(t); string(m.body) != sent[m.NoticeID] {
			t.Errorf("the replay of %s sent %s, want %s", m.NoticeID, m.body, sent[m.NoticeID])
		}
		c.settled(again.ID)
	}
}

// TestArchiveThaw: what changes an archived call brings it back.
func TestArchiveThaw(t *testing.T) {
	t.Parallel()
	c := archiveCall(t)
	c.archive()
	c.post(agent(c.id, "/scores"), map[string]any{"name": "tone", "value": 4, "turn_id": 0}).is(http.StatusCreated, nil)
	waitFor(t, "the object's end", func() bool { return len(c.objects()) == 0 })
	for _, path := range []string{agent(c.id, "/messages"), agent(c.id, "/history"), agent(c.id, "/turns/1/requests")} {
		if diff := cmp.Diff(c.read[path], c.text(path)); diff != "" {
			t.Errorf("%s reads otherwise: %s", path, diff)
		}
	}
}

// TestArchiveLost: without its object a call is an error and not an empty call, and can be erased.
func TestArchiveLost(t *testing.T) {
	t.Parallel()
	c := archiveCall(t)
	c.archive()
	if err := os.RemoveAll(c.dir); err != nil {
		t.Fatal(err)
	}
	c.server = c.again()
	for _, path := range []string{agent(c.id, "/history"), agent(c.id, "/messages"), agent(c.id, "/turns"), agent(c.id, "/turns/0/requests")} {
		c.get(path).refused(http.StatusServiceUnavailable, "ServiceUnavailable", "archive")
	}
	c.post(agent(c.id, "/scores"), map[string]any{"name": "tone", "value": 4}).refused(http.StatusServiceUnavailable, "ServiceUnavailable", "archive")
	if !strings.Contains(c.log.String(), "object 20") {
		t.Error("the log does not name the object")
	}
	if got := string(c.get(v1 + "/agents").ok(nil).body); !strings.Contains(got, c.id) {
		t.Errorf("the list lacks the call: %s", got)
	}
	c.do(http.MethodDelete, agent(c.id), nil).is(http.StatusNoContent, nil)
	c.get(agent(c.id, "/history")).refused(http.StatusNotFound, "TaskNotFound")
}

// TestArchiveErase: with a caller, and with a project, the objects of calls go.
func TestArchiveErase(t *testing.T) {
	t.Parallel()
	for name, path := range map[string]string{"caller": v1 + "/users/ann", "project": v1 + "/projects/default?confirm=default", "call": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := archiveCall(t)
			c.archive()
			if path == "" {
				path = agent(c.id)
			}
			if got := c.do(http.MethodDelete, path, nil); got.status/100 != 2 {
				t.Fatalf("%d %s", got.status, got.body)
			}
			c.get(agent(c.id, "/messages")).refused(http.StatusNotFound, "TaskNotFound")
			waitFor(t, "the object's end", func() bool { return len(c.objects()) == 0 })
		})
	}
}
