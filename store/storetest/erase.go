package storetest

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
)

// testErase: an erased agent is gone with its keys, live or ended; the same ID can be used
// again, and neighbours and other projects keep theirs.
func testErase(t *testing.T, ctx context.Context, s memory.Ledger) {
	a, b, foreign := newAgent(1), newAgent(2), newAgent(1)
	foreign.Project = "other"
	a.JoinKey, a.Settings.Call.Keys, a.Settings.Call.Shared = "key", []string{"call:1"}, []string{"room:1"}
	for _, agent := range []memory.Agent{a, b, foreign} {
		create(t, ctx, s, agent)
		if err := s.Update(ctx, agent.Project, agent.ID, says("one", "two")); err != nil {
			t.Fatal(err)
		}
	}
	update(t, ctx, s, b, end(memory.Stopped, 5))
	before, err := s.Count(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Erase(ctx, project, a.ID); err != nil {
		t.Fatal(err)
	}
	wantCode(t, s.Erase(ctx, project, a.ID), fault.NotFound)
	_, err = s.Head(ctx, project, a.ID)
	wantCode(t, err, fault.NotFound)
	_, _, err = s.Recent(ctx, project, a.ID, 10, false)
	wantCode(t, err, fault.NotFound)
	_, err = s.Messages(ctx, project, a.ID, memory.MessageQuery{Limit: 10})
	wantCode(t, err, fault.NotFound)
	wantCode(t, s.Update(ctx, project, a.ID, says("x")), fault.NotFound)
	for _, key := range []string{"call:1", "room:1"} {
		_, err = s.ByKey(ctx, project, key)
		wantCode(t, err, fault.NotFound)
	}
	page, err := s.Agents(ctx, memory.AgentQuery{Project: project, Limit: 10})
	if err != nil || page.Total != 1 || page.Heads[0].Agent.ID != b.ID {
		t.Errorf("agents left %+v, %v", page, err)
	}
	if err := s.Live(ctx, func(h memory.Head) error {
		if h.Agent.Project == project {
			t.Errorf("%s is still live", h.Agent.ID)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	after, err := s.Count(ctx)
	if before[memory.Running]--; err != nil || after != before {
		t.Errorf("counts %v, want %v: %v", after, before, err)
	}
	if list, err := s.Messages(ctx, foreign.Project, foreign.ID, memory.MessageQuery{Limit: 10}); err != nil || len(list) != 2 {
		t.Errorf("the other project's agent has %d messages, %v", len(list), err)
	}
	create(t, ctx, s, a) // id, name, join key and call keys are free
	if list := ledger(t, ctx, s, a); len(list) != 0 {
		t.Errorf("a new agent has %d messages", len(list))
	}
	if err := s.Erase(ctx, project, b.ID); err != nil { // one that has ended
		t.Fatal(err)
	}
	_, err = s.Head(ctx, project, b.ID)
	wantCode(t, err, fault.NotFound)
}

// testEraseRace: while agents are erased others write to them. A write is either part of what was
// erased or fails; nothing stays behind.
func testEraseRace(t *testing.T, ctx context.Context, s memory.Ledger) {
	for round := range 10 {
		a := create(t, ctx, s, newAgent(round))
		var wg sync.WaitGroup
		for w := range 4 {
			wg.Go(func() {
				for i := range 10 {
					if err := s.Update(ctx, project, a.ID, says(fmt.Sprint(w, i))); err != nil && !fault.Is(err, fault.NotFound) {
						t.Errorf("write while erasing: %v", err)
					}
				}
			})
		}
		wg.Go(func() {
			if err := s.Erase(ctx, project, a.ID); err != nil {
				t.Errorf("erase: %v", err)
			}
		})
		wg.Wait()
		create(t, ctx, s, newAgent(round))
		if list := ledger(t, ctx, s, newAgent(round)); len(list) != 0 {
			t.Fatalf("%d messages came back", len(list))
		}
	}
}
