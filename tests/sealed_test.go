package tests

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/heardlog/heardlog/examples/fakellm/fake"
)

// sealedWord is what must not be found on disk.
const sealedWord = "Xq7canary9Zk"

// shownBytes are the bytes of a column, as PostgreSQL shows them.
var shownBytes = regexp.MustCompile(`\\x[0-9a-f]+`)

// onDisk returns all that the store of a server has on disk.
func (s *server) onDisk() (all []byte) {
	t, url := s.t, ""
	for _, e := range s.env {
		if v, ok := strings.CutPrefix(e, "HEARDLOG_STORE="); ok {
			url = v
		}
	}
	if path, ok := strings.CutPrefix(url, "sqlite:"); ok {
		files, err := filepath.Glob(filepath.Dir(path) + "/*")
		if err != nil || len(files) == 0 {
			t.Fatal(files, err)
		}
		for _, name := range files {
			if b, err := os.ReadFile(name); err == nil {
				all = append(all, b...)
			}
		}
		return all
	}
	ctx := context.Background()
	url, _, _ = strings.Cut(url, "&pool_")
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	rows, err := conn.Query(ctx, "SELECT table_name::text FROM information_schema.tables WHERE table_schema = current_schema()")
	if err != nil {
		t.Fatal(err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	for _, name := range names {
		rows, failed := conn.Query(ctx, "SELECT r::text FROM "+pgx.Identifier{name}.Sanitize()+" r")
		if failed != nil {
			t.Fatal(failed)
		}
		list, failed := pgx.CollectRows(rows, pgx.RowTo[string])
		if failed != nil {
			t.Fatal(failed)
		}
		for _, row := range list {
			all = append(all, row...)
			for _, digits := range shownBytes.FindAllString(row, -1) {
				b, _ := hex.DecodeString(digits[2:])
				all = append(all, b...)
			}
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestSealed: with HEARDLOG_DATA_KEY no words of a call, its caller's facts, documents, values,
// prompts and webhooks are on disk or in the log, and all of them can be read. Without the key all
// are on disk, so the search for them finds what is there.
func TestSealed(t *testing.T) {
	t.Parallel()
	for name, key := range map[string]string{"sealed": base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("k"), 32)), "in clear": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sealedCall(t, key)
		})
	}
}

func sealedCall(t *testing.T, key string) {
	_, base := upstream(t, fake.Script{Answer: "The " + sealedWord + " ferry leaves at nine."})
	c := &archivedCall{server: start(t, "HEARDLOG_LLM_URL="+base, "HEARDLOG_DATA_KEY="+key), hook: newHook(t), dir: filepath.Join(t.TempDir(), "archive")}
	c.hookTo(c.hook, nil)
	properties := caller("ann")
	properties["llm"] = map[string]any{"system_messages": []map[string]any{{"role": "system", "content": "You sell " + sealedWord + " tickets."}}}
	c.id = c.join("n", properties)
	c.chat(agent(c.id, "/chat/completions"), "When does the "+sealedWord+" ferry leave?", true).ok(nil)
	c.chat(agent(c.id, "/chat/completions"), "And the second "+sealedWord+"?", false).ok(nil)
	c.post(agent(c.id, "/interrupt"), map[string]any{"heard": "The " + sealedWord, "turn_id": 1}).ok(nil)
	c.say(c.id, user("Thank you, "+sealedWord+"."), assistant("You are welcome."))
	for what, a := range map[string]answer{
		"fact":     c.post(factsPath("ann"), map[string]any{"content": "Likes " + sealedWord, "kind": "profile"}),
		"document": c.post(vectorsPath+"/faq", map[string]any{"content": "refunds of " + sealedWord}),
		"value":    c.do(http.MethodPut, v1+"/kv/shop/cart", map[string]any{"value": sealedWord}),
	} {
		if a.status/100 != 2 {
			t.Fatalf("%s: %d %s", what, a.status, a.body)
		}
	}
	c.post(agent(c.id, "/leave"), nil).ok(nil)
	waitFor(t, "all deliveries", func() bool {
		return bytes.Contains(c.get(hooks+"/deliveries?state=delivered").ok(nil).body, []byte(`"agent.history"`)) && !strings.Contains(string(c.get(hooks+"/deliveries?state=pending").ok(nil).body), c.id)
	})
	c.readAll()
	look := func(when string) {
		t.Helper()
		n := bytes.Count(c.onDisk(), []byte(sealedWord))
		if (n == 0) != (key != "") {
			t.Errorf("%s: the disk holds the word %d times", when, n)
		}
		if strings.Contains(c.log.String(), sealedWord) {
			t.Errorf("%s: the log holds the word", when)
		}
	}
	look("while it runs")
	c.server = c.again()
	c.same()
	for _, path := range []string{agent(c.id, "/history"), agent(c.id, "/turns/1/requests"), hooks + "/messages"} {
		if !strings.Contains(c.read[path], sealedWord) && path != hooks+"/messages" {
			t.Errorf("%s lacks the word: %s", path, c.read[path])
		}
	}
	look("after a restart")
	c.archive()
	for _, object := range c.objects() {
		b, err := os.ReadFile(object)
		if err != nil || bytes.Contains(b, []byte(sealedWord)) {
			t.Errorf("the object %s holds the word, %v", object, err)
		}
	}
	c.same()
	look("archived")
	// The next call of a caller who was erased is remembered like any other.
	c.do(http.MethodDelete, v1+"/users/ann", nil).ok(nil)
	c.get(agent(c.id, "/messages")).refused(http.StatusNotFound, "TaskNotFound")
	again := c.join("again", caller("ann"))
	c.say(again, user("I am back."))
	c.server = c.again()
	if got := texts(c.ledger(again)); len(got) != 1 {
		t.Errorf("the new call holds %q", got)
	}
}
