package tests

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/heardlog/heardlog/examples/fakellm/fake"
	"github.com/heardlog/heardlog/store/export"
	"github.com/heardlog/heardlog/store/postgres/postgrestest"
	"github.com/heardlog/heardlog/store/sqlite"
)

// canaries are texts that stand in every place where something of a caller is stored.
type canaries struct{ all []string }

func (c *canaries) next() string {
	// Random, because of repetitions packed bodies have only one.
	c.all = append(c.all, rand.Text()[:12])
	return c.all[len(c.all)-1]
}

// plant stores canaries of the caller anna, between what others say. It returns them.
func (s *server) plant(t *testing.T, h *hook) *canaries {
	t.Helper()
	c := &canaries{}
	other := s.join("other", caller("ben"))
	alias := "crm-" + c.next()
	s.putCaller("anna", "aliases", `{"aliases":["`+alias+`"]}`)
	s.post(agent(other, "/messages"), map[string]any{"role": "user", "content": c.next(), "scope": map[string]any{"user_id": alias}}).ok(nil)
	s.remember("human", "I like "+c.next(), `"user_id":"anna"`, "")
	// Events of agents of others hold their texts until their retention ends.
	s.hookTo(h, map[string]any{"events": []string{"*"}})
	for _, name := range []string{"anna", alias} {
		s.post(userPath(name, "/facts"), `{"content":"Likes `+c.next()+`.","topics":["`+c.next()+`"],"cause":"`+c.next()+`"}`).is(http.StatusCreated, nil)
		h.next(t)
	}
	for i, name := range []string{"anna", alias, "anna", alias} {
		id := s.join("call "+c.next(), map[string]any{
			"channel": "c-" + c.next(), "labels": map[string]string{"note": c.next()}, "agent_rtc_uid": "0", "remote_rtc_uids": []string{"1"},
			"llm":      map[string]any{"system_messages": []any{map[string]any{"role": "system", "content": c.next()}}},
			"heardlog": map[string]any{"scope": map[string]any{"user_id": name, "session_id": c.next()}},
		})
		for range 9 {
			said := c.next()
			seq := s.say(id, user("I said "+said))[0].Seq
			s.post(userPath(name, "/facts"), fmt.Sprintf(`{"content":"Said %s","cause":%q,"source":{"agent_id":%q,"from_seq":%d,"quote":"said %s"}}`, said, c.next(), id, seq, said)).is(http.StatusCreated, nil)
			s.say(other, user(strings.Repeat("Qwixotry, jumbled. ", 40)))
			s.ask(id, "You heard "+c.next()+" and then "+c.next(), user("And now "+c.next()))
		}
		s.interrupt(id, map[string]any{"heard": "You heard"}).is(http.StatusOK, nil)
		s.do("PUT", agent(id, "/working-memory/"+c.next()), `{"value":"`+c.next()+`"}`)
		s.do("PUT", agent(id, "/summary"), map[string]any{"summary": "So far " + c.next(), "up_to_seq": 1})
		if i%2 == 0 {
			s.post(agent(id, "/leave"), nil).ok(nil)
		}
		h.next(t)
	}
	return c
}

// TestErasedCallerIsNowhere: of an erased caller not one of many texts is left in the files of the
// store, in the log, or in an export.
func TestErasedCallerIsNowhere(t *testing.T) {
	t.Parallel()
	needsFile(t)
	_, base := upstream(t, fake.Script{})
	s := start(t, "HEARDLOG_LLM_URL="+base)
	h := newHook(t)
	h.status.Store(http.StatusServiceUnavailable) // deliveries stay pending
	c := s.plant(t, h)
	files := func() string {
		var all strings.Builder
		err := filepath.WalkDir(storeDir(s), func(path string, f fs.DirEntry, err error) error {
			if err != nil || f.IsDir() {
				return err
			}
			all.WriteString(path) // names are content, too
			b, err := os.ReadFile(path)
			all.Write(b)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return all.String()
	}
	before := files()
	for _, text := range c.all {
		if !strings.Contains(before, text) {
			t.Errorf("%s is not in the files: the test proves nothing", text)
		}
	}
	if len(c.all) < 200 {
		t.Errorf("there are %d texts", len(c.all))
	}
	s.do("DELETE", userPath("anna"), nil).ok(nil)
	s.get(userPath("anna", "/export")).refused(http.StatusNotFound, "TaskNotFound")
	for _, when := range []string{"after the erasure", "after the end"} {
		after := files()
		for _, text := range c.all {
			if at := strings.Index(after, text); at >= 0 {
				t.Errorf("%s %s is in the files: …%q…", when, text, after[max(0, at-80):min(len(after), at+40)])
			}
		}
		if !strings.Contains(after, "Qwixotry, jumbled.") {
			t.Error("what others said is gone")
		}
		s.stop()
	}
	log := s.log.String()
	for _, text := range c.all {
		at := strings.Index(log, text)
		if at < 0 {
			continue
		}
		t.Errorf("the log has it: …%s…", log[max(0, at-300):at+20])
	}
	for _, e := range s.env {
		path, ok := strings.CutPrefix(e, "HEARDLOG_STORE=sqlite:")
		if !ok {
			continue
		}
		store, err := sqlite.OpenReader(sqlite.Options{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		var out strings.Builder
		if _, err := export.Write(t.Context(), &out, store, export.Scope{}, true, nil); err != nil {
			t.Fatal(err)
		}
		holds := func(text string) bool { return strings.Contains(out.String(), text) }
		if slices.ContainsFunc(c.all, holds) || !holds("Qwixotry, jumbled.") {
			t.Error("the export holds texts of the caller, or not those of others")
		}
	}
}

// TestErasedCallerIsInNoTable is the same for the tables of PostgreSQL.
func TestErasedCallerIsInNoTable(t *testing.T) {
	t.Parallel()
	_, base := upstream(t, fake.Script{})
	store := postgrestest.URL(t)
	s := start(t, "HEARDLOG_STORE="+store, "HEARDLOG_LLM_URL="+base)
	h := newHook(t)
	h.status.Store(http.StatusServiceUnavailable)
	var texts []string
	for _, text := range s.plant(t, h).all { // a bytea column shows as hexadecimal digits in JSON
		texts = append(texts, text, hex.EncodeToString([]byte(text)))
	}
	look := func(fails string) {
		postgrestest.Exec(t, store, `DO $$ DECLARE r record; n bigint; total bigint := 0; tables text := ''; BEGIN
			FOR r IN SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema() LOOP
				EXECUTE format('SELECT count(*) FROM %I t WHERE row_to_json(t)::text ~* ''`+strings.Join(texts, "|")+`''', r.table_name) INTO n;
				total := total + n;
				IF n > 0 THEN tables := tables || ' ' || r.table_name; END IF;
			END LOOP;
			IF total `+fails+` THEN RAISE EXCEPTION '% rows hold texts of the caller:%', total, tables; END IF; END $$`)
	}
	look("< 100")
	s.do("DELETE", userPath("anna"), nil).ok(nil)
	look("> 0")
}
