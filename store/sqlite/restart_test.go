package sqlite_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/internal/event"
	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/secret"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store"
	"github.com/heardlog/heardlog/store/encryption"
	"github.com/heardlog/heardlog/store/engine"
	"github.com/heardlog/heardlog/store/sqlite"
	"github.com/heardlog/heardlog/webhook"
)

// Environment of the test binary when it runs itself as another process; see TestMain.
const (
	helperPath = "HEARDLOG_TEST_HELPER_PATH"
	helperMode = "HEARDLOG_TEST_HELPER_MODE"
)

// TestMain lets the test binary be a process of its own that writes and is killed.
func TestMain(m *testing.M) {
	if path := os.Getenv(helperPath); path != "" {
		if err := helper(context.Background(), path, os.Getenv(helperMode)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

const helperAgents = 16

// helper appends with several callers at once and prints each acknowledged message, until it is
// killed. In mode "hold" it only holds the file.
func helper(ctx context.Context, path, mode string) error {
	switch mode {
	case "seal":
		_, err := sqlite.SealOld(ctx, sqlite.Options{Path: path, DataKey: dataKey})
		return err
	case "rotate":
		_, err := sqlite.RotateDataKey(sqlite.Options{Path: path, DataKey: dataKey}, otherKey)
		if errors.Is(err, encryption.ErrWrongDataKey) { // a helper before did it, and was killed
			err = nil
		}
		return err
	}
	s, err := store.OpenSQLite(ctx, sqlite.Options{Path: path}, engine.Options{})
	if err != nil {
		return err
	}
	if mode == "hold" {
		fmt.Println("open")
		select {}
	}
	if err := webhook.PutEndpoint(ctx, s, webhook.Endpoint{ID: "e", Project: "p", URL: "https://e.example"}); err != nil {
		return err
	}
	for n := range helperAgents {
		if _, _, err := s.Create(ctx, agent("p", n), 0, memory.Change{}); err != nil && fault.CodeOf(err) != fault.Conflict {
			return err
		}
	}
	fmt.Println("open")
	switch mode {
	case "early":
		return helpEarly(ctx, s, path)
	case "full":
		return helpFull(ctx, s, path)
	case "records":
		return helpRecords(ctx, s)
	}
	var out sync.Mutex
	errs := make(chan error)
	for n := range helperAgents {
		for range 2 {
			go func() {
				for {
					var seq int64
					var ev string
					err := s.Update(ctx, "p", agent("p", n).ID, func(tx memory.AgentView) (memory.Change, error) {
						c, err := appendOne(sentence)(tx)
						seq = c.Append[0].Seq
						ev = fmt.Sprintf("%d-%d", n, seq)
						c.Append[0].Content = ev
						c.Events = []memory.Event{{ID: ev, Type: event.Left, CreatedMS: 1, Body: []byte(ev)}}
						return c, err
					})
					if err != nil {
						errs <- err
						return
					}
					out.Lock()
					fmt.Println("ack", n, seq)
					out.Unlock()
				}
			}()
		}
	}
	return <-errs
}

// startHelper starts the process and waits until it has the file open.
func startHelper(t *testing.T, path, mode string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), helperPath+"="+path, helperMode+"="+mode)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "open" {
		t.Fatalf("helper said %q", lines.Text())
	}
	return cmd, lines
}

// TestKill kills a process that writes, again and again, and looks for what it had acknowledged:
// messages and deliveries.
func TestKill(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "k.db")
	acked := map[[2]int64]bool{}
	for range 12 {
		cmd, lines := startHelper(t, path, "")
		last := 20 + rand.IntN(400)
		for n := 0; lines.Scan(); n++ {
			if n == last {
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
			var a, seq int64
			if _, err := fmt.Sscanf(lines.Text(), "ack %d %d", &a, &seq); err != nil {
				break // a line cut by the kill
			}
			if acked[[2]int64{a, seq}] {
				t.Fatalf("agent %d: seq %d was given twice", a, seq)
			}
			acked[[2]int64{a, seq}] = true
		}
		_ = cmd.Wait()
	}
	s := open(t, sqlite.Options{Path: path})
	stored := 0
	for n := range helperAgents {
		after := int64(0)
		for {
			list, err := s.Messages(t.Context(), "p", agent("p", n).ID, memory.MessageQuery{AfterSeq: after, Limit: 500})
			if err != nil {
				t.Fatal(err)
			}
			if len(list) == 0 {
				break
			}
			for _, m := range list {
				if m.Seq != after+1 || m.Content != fmt.Sprintf("%d-%d", n, m.Seq) {
					t.Fatalf("agent %d: %q with seq %d after %d", n, m.Content, m.Seq, after)
				}
				after = m.Seq
				delete(acked, [2]int64{int64(n), m.Seq})
				stored++
			}
		}
	}
	if len(acked) > 0 {
		t.Errorf("%d acknowledged messages are lost", len(acked))
	}
	b, err := s.Backlog(t.Context())
	if err != nil || b.Pending != stored {
		t.Errorf("%d deliveries of %d messages: %v", b.Pending, stored, err)
	}
	if stored < 12*20 {
		t.Errorf("only %d messages were written", stored)
	}
}

// everything reads all there is of a store.
func everything(t *testing.T, s *store.SQLite) any {
	t.Helper()
	ctx := t.Context()
	type agentData struct {
		Head memory.Head
		List []memory.Message
	}
	var out struct {
		Page      memory.AgentPage
		Agents    []agentData
		Counts    [memory.Statuses]int
		Endpoints []webhook.Endpoint
		Backlog   webhook.Backlog
		Records   []webhook.Record
		Attempts  []webhook.Attempt
		Live      map[string]memory.Head
	}
	var err error
	check := func() {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
	}
	out.Page, err = s.Agents(ctx, memory.AgentQuery{Project: "p", Limit: 100})
	check()
	for _, h := range out.Page.Heads {
		var d agentData
		d.Head, err = s.Head(ctx, "p", h.Agent.ID)
		check()
		d.List, err = s.Messages(ctx, "p", h.Agent.ID, memory.MessageQuery{Limit: 1000})
		check()
		out.Agents = append(out.Agents, d)
	}
	out.Counts, err = s.Count(ctx)
	check()
	out.Endpoints, err = s.Endpoints(ctx, "", "")
	check()
	out.Backlog, err = s.Backlog(ctx)
	check()
	sent, err := s.Deliveries(ctx, webhook.DeliveryQuery{Project: "p", EventID: "ev1", Limit: 10})
	check()
	for _, d := range sent.Deliveries {
		record, tries, err := s.Delivery(ctx, "p", d.ID)
		if err != nil {
			t.Fatal(err)
		}
		record.Claimed, record.DueMS = false, 0 // claims end with their owner
		out.Records, out.Attempts = append(out.Records, record), append(out.Attempts, tries...)
	}
	out.Live = map[string]memory.Head{}
	err = s.Live(ctx, func(h memory.Head) error { out.Live[h.Agent.ID] = h; return nil })
	check()
	return out
}

// fill writes some of everything, heads among it that cannot be told from the last message alone.
func fill(t *testing.T, s *store.SQLite) {
	t.Helper()
	ctx := t.Context()
	do := func(err error) {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
	}
	do(webhook.PutEndpoint(ctx, s, webhook.Endpoint{ID: "e", Project: "p", URL: "https://e.example", Secrets: []webhook.SigningSecret{{Value: "whsec_plain"}}}))
	do(webhook.PutEndpoint(ctx, s, webhook.Endpoint{ID: "f", Project: "p", URL: "https://f.example"}))
	for n := range 5 {
		a := agent("p", n)
		a.Settings.LLM.APIKey = "sk-very-secret"
		a.Settings.LLM.Headers = map[string]secret.String{"X-Api": "hk-very-secret"}
		a.Properties = []byte(`{"tts":{"params":{"key":"tts-very-secret"}}}`)
		_, _, err := s.Create(ctx, a, 0, memory.Change{})
		do(err)
		for range n * 20 {
			do(s.Update(ctx, "p", a.ID, appendOne(sentence)))
		}
	}
	// An old message has the highest rev.
	do(s.Update(ctx, "p", agent("p", 2).ID, func(tx memory.AgentView) (memory.Change, error) {
		m, err := tx.Seq(3)
		m.Rev, m.Content = tx.Head().Rev+1, "changed"
		return memory.Change{Replace: []memory.Message{m}}, err
	}))
	// Numbers kept free far ahead, and a lower turn behind.
	do(s.Update(ctx, "p", agent("p", 3).ID, func(tx memory.AgentView) (memory.Change, error) {
		h := tx.Head()
		return memory.Change{Append: []memory.Message{
			{Seq: h.NextSeq, Rev: h.Rev + 1, Role: memory.User, TurnID: 500, AnswerSeq: h.NextSeq + 9},
			{Seq: h.NextSeq + 1, Rev: h.Rev + 1, Role: memory.Tool, TurnID: 400},
		}}, nil
	}))
	do(s.Update(ctx, "p", agent("p", 4).ID, func(tx memory.AgentView) (memory.Change, error) {
		a := *tx.Head().Agent
		a.Status, a.StopMS, a.Message, a.Rev = memory.Stopped, 99, memory.EndIdle, tx.Head().Rev+1
		return memory.Change{Agent: &a, Events: []memory.Event{{ID: "ev1", Type: 102, CreatedMS: 5, Body: []byte("{}")}}}, nil
	}))
	list, err := webhook.ClaimFrom(ctx, s, webhook.Claim{NowMS: 10, Limit: 1, Lease: time.Minute})
	do(err)
	do(s.Finish(ctx, list[0], webhook.Result{State: webhook.Delivered, Try: webhook.Attempt{N: 1, Status: 200, Response: []byte("ok")}}))
}

func TestReopenKeepsEverything(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "r.db")
	s := open(t, sqlite.Options{Path: path})
	fill(t, s)
	want := everything(t, s)
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = open(t, sqlite.Options{Path: path})
		if d := cmp.Diff(want, everything(t, s)); d != "" {
			t.Fatalf("after reopening (-want +got):\n%s", d)
		}
	}
	// A turn number that once went down does not hide what belongs to a turn.
	err := s.Update(t.Context(), "p", agent("p", 3).ID, func(tx memory.AgentView) (memory.Change, error) {
		for turn, want := range map[int64]int{400: 1, 500: 1, 10: 1, 600: 0} {
			if list, err := tx.Turn(turn); err != nil || len(list) != want {
				t.Errorf("turn %d has %d messages, want %d: %v", turn, len(list), want, err)
			}
		}
		return memory.Change{}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestSecondProcessIsRefused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "l.db")
	cmd, _ := startHelper(t, path, "hold")
	refused := func() {
		t.Helper()
		s, err := sqlite.Open(t.Context(), sqlite.Options{Path: path})
		if err == nil {
			s.Close()
			t.Fatal("the file was opened twice")
		}
		if fault.CodeOf(err) != fault.Unavailable || !strings.Contains(err.Error(), "in use by another process") || !strings.Contains(err.Error(), path) {
			t.Errorf("refused with: %v", err)
		}
	}
	refused()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	open(t, sqlite.Options{Path: path}) // the kill gave the lock back
	refused()                           // by this process too
}

func TestModes(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "made for it")
	s := open(t, sqlite.Options{Path: filepath.Join(dir, "a ?%#b.db")})
	fill(t, s)
	for name, want := range map[string]fs.FileMode{
		"": 0o700 | fs.ModeDir, "a ?%#b.db": 0o600, "a ?%#b.db-wal": 0o600, "a ?%#b.db-shm": 0o600, "a ?%#b.db.lock": 0o600,
	} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != want {
			t.Errorf("%q has mode %v, want %v", name, info.Mode(), want)
		}
	}
	if s, err := store.OpenSQLite(t.Context(), sqlite.Options{Path: filepath.Join(t.TempDir(), "mistaken", "path", "a.db")}, engine.Options{}); err == nil {
		_ = s.Close()
		t.Error("two missing folders were made")
	}
}
