package tests

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/heardlog/heardlog/internal/erasure"
	"github.com/heardlog/heardlog/store/export"
	"github.com/heardlog/heardlog/store/sqlite"
)

// erasureOf is an erasure as the API shows it.
type erasureOf struct {
	ID         string         `json:"id"`
	Kind       string         `json:"kind"`
	State      string         `json:"state"`
	AgentID    string         `json:"agent_id"`
	AskedAt    time.Time      `json:"asked_at"`
	ErasedAt   time.Time      `json:"erased_at"`
	By         string         `json:"by"`
	Erased     map[string]int `json:"erased"`
	Unfinished bool           `json:"unfinished"`
	AgainAt    string         `json:"again_at"`
	Where      []struct{ Place, State, Note string }
	Remains    []struct {
		What, Reason string
		Count        int
		Agents       []string
		Backups      []string
		Until        time.Time
	}
}

func erasurePath(id string) string { return v1 + "/erasures/" + id }

// erasure returns the receipt of an erasure.
func (s *server) erasure(id string, headers ...string) (e erasureOf) {
	s.t.Helper()
	s.get(erasurePath(id), headers...).ok(&e)
	return e
}

// remaining returns what remains after an erasure.
func (e *erasureOf) remaining() (what []string) {
	for _, r := range e.Remains {
		what = append(what, r.What)
	}
	return what
}

// eraseUser erases a caller and returns the ID of the erasure.
func (s *server) eraseUser(user string, headers ...string) string {
	s.t.Helper()
	var got struct {
		ID string `json:"erasure_id"`
	}
	s.do("DELETE", userPath(user), nil, headers...).ok(&got)
	return got.ID
}

// TestErasureReceipts: each erasure has a receipt with what was erased, by whom, where, and what
// remains and why; none has a name of the caller. Receipts outlive the erasure of their project.
func TestErasureReceipts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	backups := filepath.Join(dir, "backups")
	s := start(t, backupModel(t, backups), "HEARDLOG_SECRET_KEY="+strings.Repeat("k", 32), "HEARDLOG_ERASURES="+filepath.Join(dir, "ledger"))
	key := bearer(s.newKey("admin"))
	caller := func(name, user string) string {
		return s.post(v1+"/agents", map[string]any{"name": name, "properties": caller(user)}, key...).joined()
	}
	caller("one", "+4915112345678")
	second := caller("two", "ben")
	shared := s.post(v1+"/agents", map[string]any{"name": "both", "properties": map[string]any{"channel": "c", "agent_rtc_uid": "0", "remote_rtc_uids": []string{"+4915112345678", "ben"}}}, key...).joined()
	s.post(agent(second, "/messages"), user("I like tea"), key...).ok(nil)
	s.post(userPath("ben", "/facts"), `{"content":"Likes tea.","source":{"agent_id":"`+second+`","from_seq":1,"quote":"I like tea"}}`, key...).is(http.StatusCreated, nil)
	waitFor(t, "a backup", func() bool {
		list, _ := os.ReadDir(backups)
		return len(list) == 1
	})

	of := s.erasure(s.eraseUser("+4915112345678", key...), key...)
	if of.Kind != "user" || of.State != "erased" || of.By != "admin" || of.AgentID != "" || of.Erased["agents"] != 1 || of.ErasedAt.Before(of.AskedAt) || of.AgainAt != "" {
		t.Errorf("receipt of a user: %+v", of)
	}
	if got := strings.Join(of.remaining(), " "); got != "shared_agents backups conversations deliveries audit" {
		t.Errorf("what remains: %s", got)
	}
	if r := of.Remains[0]; r.Count != 1 || len(r.Agents) != 1 || r.Agents[0] != shared {
		t.Errorf("shared agents: %+v", r)
	}
	if r := of.Remains[1]; r.Count != 1 || len(r.Backups) != 1 || !strings.HasPrefix(r.Backups[0], "heardlog-") || time.Until(r.Until) < 23*time.Hour || time.Until(r.Until) > 24*time.Hour {
		t.Errorf("backups: %+v", r)
	}
	if len(of.Where) != 2 || of.Where[0].Place != "store" || of.Where[1].Place != "ledger" {
		t.Errorf("where: %+v", of.Where)
	}
	got := s.do("DELETE", agent(second), nil, key...)
	got.is(http.StatusNoContent, nil)
	one := s.erasure(got.header.Get("X-Heardlog-Erasure"), key...)
	if one.Kind != "agent" || one.AgentID != second || one.Erased["agents"] != 1 || one.Erased["records"] != 1 {
		t.Errorf("receipt of an agent: %+v", one)
	}
	if again := s.do("DELETE", agent(second), nil, key...); again.status != http.StatusNoContent || again.header.Get("X-Heardlog-Erasure") != "" {
		t.Errorf("erased twice: %d %v", again.status, again.header)
	}
	var whole struct {
		ID string `json:"erasure_id"`
	}
	s.do("DELETE", v1+"/projects/default?confirm=default", nil, key...).ok(&whole)
	if got := s.erasure(whole.ID, key...); got.Kind != "project" || got.Erased["agents"] != 1 {
		t.Errorf("receipt of a project: %+v", got)
	}

	var ids []string
	for cursor := ""; ; {
		var page struct {
			Erasures []erasureOf
			Cursor   string `json:"next_cursor"`
		}
		answer := s.get(v1+"/erasures?limit=2&cursor="+cursor, key...)
		answer.ok(&page)
		for _, e := range page.Erasures {
			ids = append(ids, e.ID)
		}
		if strings.Contains(string(answer.body), "491511") {
			t.Errorf("a name is in %s", answer.body)
		}
		if cursor = page.Cursor; cursor == "" {
			break
		}
	}
	if got, want := strings.Join(ids, " "), strings.Join([]string{of.ID, one.ID, whole.ID}, " "); got != want {
		t.Errorf("listed %s, want %s", got, want)
	}
	s.get(erasurePath("no-such"), key...).refused(http.StatusNotFound, "TaskNotFound")
	s.get(v1+"/erasures?limit=x", key...).refused(http.StatusBadRequest, "InvalidFieldValue")
}

// TestErasureSurvivesRestore: a server that starts on another database than the one in which a
// caller was erased erases the caller there too, before it serves: it came from a backup. A call
// that began later stays, and the receipt says that it was applied again.
func TestErasureSurvivesRestore(t *testing.T) {
	t.Parallel()
	ledger := "HEARDLOG_ERASURES=" + filepath.Join(t.TempDir(), "ledger")
	restored := start(t, ledger)
	old := restored.join("old", caller("anna"))
	restored.say(old, user("from before"))
	restored.post(userPath("anna", "/facts"), `{"content":"Likes tea."}`).is(http.StatusCreated, nil)
	other := restored.join("other", caller("ben"))
	restored.stop()

	s := start(t, ledger)
	s.join("now", caller("anna"))
	id := s.eraseUser("anna")
	s.get(userPath("anna")).refused(http.StatusNotFound, "TaskNotFound")
	s.join("later", caller("anna"))
	s.stop()

	again := restored.again()
	again.get(agent(old, "/history")).refused(http.StatusNotFound, "TaskNotFound")
	again.get(userPath("anna")).refused(http.StatusNotFound, "TaskNotFound")
	again.get(agent(other)).ok(nil)
	if e := again.erasure(id); e.AgainAt == "" || e.Kind != "user" {
		t.Errorf("receipt after the restore: %+v", e)
	}
	if !strings.Contains(again.log.String(), "erased again") {
		t.Error("the log does not say that erasures were applied")
	}
	back := again.join("back", caller("anna"))
	once := again.again()
	once.get(agent(back)).ok(nil)
	if strings.Contains(once.log.String(), "erased again") {
		t.Error("applied once more at the next start")
	}
	elsewhere := once.again("HEARDLOG_ERASURES=" + filepath.Join(t.TempDir(), "other"))
	if !strings.Contains(elsewhere.log.String(), "the ledger of erasures is empty") {
		t.Error("nothing is said of a ledger that is elsewhere")
	}
	e := elsewhere.erasure(id)
	if where := e.Where[len(e.Where)-1]; where.Place != "ledger" || where.State != "missing" || e.remaining()[0] != "ledger" {
		t.Errorf("the receipt with another ledger: %+v", e)
	}
}

// TestErasureLedgerAway: while the ledger of erasures cannot be written, an erasure is refused and
// erases nothing; a server that cannot read it does not start.
func TestErasureLedgerAway(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ledger")
	s := start(t, "HEARDLOG_ERASURES="+path)
	id := s.join("one", caller("anna"))
	if err := os.WriteFile(path, nil, 0o600); err != nil { // where the folder was to be
		t.Fatal(err)
	}
	for _, path := range []string{agent(id), userPath("anna"), v1 + "/projects/default?confirm=default"} {
		s.do("DELETE", path, nil).refused(http.StatusServiceUnavailable, "ServiceUnavailable", "HEARDLOG_ERASURES")
	}
	s.get(agent(id)).ok(nil)
	s.stop()
	if err := s.fails(); !strings.Contains(err, "HEARDLOG_ERASURES") {
		t.Errorf("the server starts without its ledger: %s", err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	s = s.again()
	s.do("DELETE", agent(id), nil).is(http.StatusNoContent, nil)
	s.get(agent(id)).refused(http.StatusNotFound, "TaskNotFound")
}

// TestErasureImportKilled: an import that is killed after its last record, before it has applied
// the erasures, brings nothing back: the next start applies them.
func TestErasureImportKilled(t *testing.T) {
	t.Parallel()
	needsFile(t)
	old := start(t)
	id := old.join("old", caller("anna"))
	old.say(id, user("from before"))
	old.stop()
	var lines bytes.Buffer
	from, err := sqlite.OpenReader(sqlite.Options{Path: filepath.Join(storeDir(old), "heardlog.db")})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := export.Write(t.Context(), &lines, from, export.Scope{}, false, nil); err != nil {
		t.Fatal(err)
	}
	if err := from.Close(); err != nil {
		t.Fatal(err)
	}
	s := start(t)
	s.eraseUser("anna")
	s.stop()
	to, err := sqlite.OpenImporter(sqlite.Options{Path: filepath.Join(storeDir(s), "heardlog.db")})
	if err != nil {
		t.Fatal(err)
	}
	if err := erasure.BeginImport(t.Context(), to, "import-1", 1); err != nil {
		t.Fatal(err)
	}
	if _, _, err := export.Read(t.Context(), &lines, to, nil); err != nil {
		t.Fatal(err)
	}
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
	for _, applied := range []bool{true, false} {
		s = s.again()
		s.get(agent(id)).refused(http.StatusNotFound, "TaskNotFound")
		if got := strings.Contains(s.log.String(), "erased again"); got != applied {
			t.Errorf("applied at the start: %t, want %t", got, applied)
		}
	}
}

// TestErasureSurvivesSnapshot: a snapshot of database and archive from before an erasure is put
// back. The call is not served, and its object goes again.
func TestErasureSurvivesSnapshot(t *testing.T) {
	t.Parallel()
	needsFile(t)
	c := archiveCall(t, "HEARDLOG_ERASURES="+filepath.Join(t.TempDir(), "ledger"))
	c.archive()
	c.stop()
	file := filepath.Join(storeDir(c.server), "heardlog.db")
	database, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	snapshot := filepath.Join(t.TempDir(), "archive")
	if err := os.CopyFS(snapshot, os.DirFS(c.dir)); err != nil {
		t.Fatal(err)
	}
	c.server = c.again()
	receipt := c.erasure(c.eraseUser("ann"))
	if where := receipt.Where; len(where) != 3 || where[1].Place != "archive" {
		t.Errorf("where: %+v", where)
	}
	waitFor(t, "the object's end", func() bool { return len(c.objects()) == 0 })
	c.stop()
	if err := os.WriteFile(file, database, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(c.dir); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(c.dir, os.DirFS(snapshot)); err != nil {
		t.Fatal(err)
	}
	if len(c.objects()) != 1 {
		t.Fatal("the snapshot has no object")
	}
	c.server = c.again()
	c.get(agent(c.id, "/history")).refused(http.StatusNotFound, "TaskNotFound")
	c.get(userPath("ann")).refused(http.StatusNotFound, "TaskNotFound")
	waitFor(t, "the object's end after the snapshot", func() bool { return len(c.objects()) == 0 })
}
