package tests

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"testing"
)

// TestTail watches an agent from join to leave.
func TestTail(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.join("n", nil)
	tail := s.tail(id)
	tail.status("RUNNING") // as it is
	s.say(id, user("Hi"))
	m := tail.message("Hi", func(m message) bool { return m.Content == "Hi" })
	if m.Role != "user" || m.Seq != 1 {
		t.Errorf("%+v", m)
	}
	s.say(id, assistant("Good morning to you"))
	tail.message("the answer", func(m message) bool { return m.Role == "assistant" })
	s.interrupt(id, `{"heard":"Good morning"}`).ok(nil)
	cut := tail.message("the answer cut", func(m message) bool { return m.Role == "assistant" && m.Metadata["interrupted"] == true })
	if cut.Content != "Good morning" || cut.Generated != "Good morning to you" || cut.Seq != 2 {
		t.Errorf("%+v", cut)
	}
	s.post(agent(id, "/speak"), `{"text":"Bye"}`).ok(nil)
	tail.message("Bye", func(m message) bool { return m.Content == "Bye" && m.Metadata["source"] == "command" })
	s.post(agent(id, "/update"), `{}`).ok(nil)
	s.post(agent(id, "/leave"), nil).ok(nil)
	if why := tail.status("STOPPED"); why != "OK" {
		t.Errorf("it ended with %q", why)
	}
	tail.end()
	again := s.tail(id) // of an agent that has ended: the end at once
	if why := again.status("STOPPED"); why != "OK" {
		t.Errorf("%q", why)
	}
	again.end()
	for _, base := range []string{agora, cn} {
		s.get(base + "/agents/" + id + "/events").status200()
	}
}

func (a answer) status200() {
	a.t.Helper()
	if a.status != http.StatusOK || len(a.body) == 0 {
		a.t.Errorf("%s: %d with %d bytes", a.call, a.status, len(a.body))
	}
}

// TestTailResume: a reader that reconnects with the last ID it saw misses nothing and gets nothing
// twice.
func TestTailResume(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.join("n", nil)
	read := func(tl *tail, n int) (contents []string, last string) {
		t.Helper()
		for len(contents) < n {
			e, ok := tl.next()
			if !ok {
				t.Fatalf("the tail ended after %q", contents)
			}
			if e.id != "" {
				last = e.id
			}
			if e.name == "message" {
				var m message
				if err := json.Unmarshal(e.data, &m); err != nil {
					t.Fatal(err)
				}
				contents = append(contents, m.Content)
			}
		}
		return contents, last
	}
	first := s.tail(id)
	s.say(id, user("0"))
	_, last := read(first, 1)
	first.close()
	for i := 1; i < 240; i += 3 { // more than one page of the tail, in groups that share a revision
		s.say(id, user(fmt.Sprint(i)), assistant(fmt.Sprint(i+1)), user(fmt.Sprint(i+2)))
	}
	for _, how := range []string{"header", "query"} {
		var tl *tail
		if how == "header" {
			tl = s.tail(id, "Last-Event-ID", last)
		} else {
			tl = s.stream(agent(id, "/events?after=", last))
		}
		got, _ := read(tl, 240)
		for i, c := range got {
			if c != strconv.Itoa(i+1) {
				t.Fatalf("by %s: event %d is %q", how, i, c)
			}
		}
		tl.close()
	}
	all, _ := read(s.tail(id, "Last-Event-ID", "0"), 241)
	if all[0] != "0" || all[240] != "240" {
		t.Errorf("from the beginning: %q … %q", all[0], all[240])
	}
	for _, bad := range []string{"x", "-1", "1.5", "99999999999999999999"} {
		s.get(agent(id, "/events"), "Last-Event-ID", bad).refused(http.StatusBadRequest, "InvalidFieldValue", "Last-Event-ID")
		s.get(agent(id, "/events?after=", bad)).refused(http.StatusBadRequest, "InvalidFieldValue")
	}
	s.get(agent("unknown", "/events")).refused(http.StatusNotFound, "TaskNotFound")
}

// TestTailsEndWithTheServer: open tails do not delay a stop.
func TestTailsEndWithTheServer(t *testing.T) {
	t.Parallel()
	s := start(t, "HEARDLOG_SHUTDOWN_TIMEOUT=20s")
	id := s.join("n", nil)
	var tails []*tail
	for range 5 {
		tl := s.tail(id)
		tl.status("RUNNING")
		tails = append(tails, tl)
	}
	s.stop()
	for _, tl := range tails {
		tl.end()
	}
}

// TestManyWatchers each see every change.
func TestManyWatchers(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.join("n", nil)
	var tails []*tail
	for range 20 {
		tails = append(tails, s.tail(id))
	}
	for i := range 10 {
		s.say(id, user(fmt.Sprint(i)))
	}
	for _, tl := range tails {
		want := 0
		for want < 10 {
			m := tl.message("a message", func(message) bool { return true })
			if m.Content != fmt.Sprint(want) {
				t.Fatalf("%q came, want %d", m.Content, want)
			}
			want++
		}
	}
}
