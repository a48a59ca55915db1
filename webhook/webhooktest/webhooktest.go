// Package webhooktest is the contract of webhook.Store (Queue, Endpoints and Log) as a test suite.
// Every driver runs it on a store whose changes fill the queue.
package webhooktest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	eventtype "github.com/heardlog/heardlog/internal/event"
	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/webhook"
)

// rig is a store with one agent, and a clock that tests move by hand.
type rig struct {
	t     *testing.T
	ctx   context.Context
	store memory.Ledger
	queue webhook.Store
	agent memory.Agent
}

// Run runs the contract. open returns an empty store and its queue, and closes them when the test
// ends.
func Run(t *testing.T, open func(*testing.T) (memory.Ledger, webhook.Store)) {
	for name, test := range map[string]func(rig){
		"Endpoints":              testEndpoints,
		"EndpointReplaced":       testEndpointReplaced,
		"EndpointDeleted":        testEndpointDeleted,
		"EndpointDisabled":       testEndpointDisabled,
		"FanOut":                 testFanOut,
		"NobodyWants":            testNobodyWants,
		"OutboxIsAllOrNone":      testOutboxIsAllOrNone,
		"EventIDsAreUnique":      testEventIDsAreUnique,
		"CreateEmits":            testCreateEmits,
		"ClaimGivesEverything":   testClaimGivesEverything,
		"ClaimOnce":              testClaimOnce,
		"ClaimOrder":             testClaimOrder,
		"ClaimPerEndpoint":       testClaimPerEndpoint,
		"ClaimRace":              testClaimRace,
		"LeaseExpires":           testLeaseExpires,
		"StaleFence":             testStaleFence,
		"FinishDelivered":        testFinishDelivered,
		"FinishRetries":          testFinishRetries,
		"FinishDead":             testFinishDead,
		"FinishDisablesEndpoint": testFinishDisablesEndpoint,
		"FinishAfterDeletion":    testFinishAfterDeletion,
		"Release":                testRelease,
		"Attempts":               testAttempts,
		"Backlog":                testBacklog,
		"Woken":                  testWoken,
		"SweepWaitsForPending":   testSweepWaitsForPending,
		"ErasePending":           testErasePending,
		"ManyEvents":             testManyEvents,
		"Closed":                 testClosed,
		"CreateEndpoint":         testCreateEndpoint,
		"UpdateEndpoint":         testUpdateEndpoint,
		"Room":                   testRoom,
		"Deliveries":             testDeliveries,
		"DeliveriesPaged":        testDeliveriesPaged,
		"Events":                 testEvents,
		"Rewritten":              testRewritten,
		"Replay":                 testReplay,
		"ReplayAll":              testReplayAll,
		"ReplayNamed":            testReplayNamed,
		"ReplayNamedAtOnce":      testReplayNamedAtOnce,
		"ReplayPaced":            testReplayPaced,
		"TestsFirst":             testTestsFirst,
		"Untried":                testUntried,
		"ClaimFair":              testClaimFair,
		"ClaimAllow":             testClaimAllow,
		"ClaimBytes":             testClaimBytes,
		"ForgetAgentless":        testForgetAgentless,
		"Cancel":                 testCancel,
		"Send":                   testSend,
		"ForgetDone":             testForgetDone,
		"ServerKey":              testServerKey,
		"DeadTells":              testDeadTells,
		"DisabledAfter":          testDisabledAfter,
		"OldestPending":          testOldestPending,
		"HealthInOneGroup":       testHealthInOneGroup,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, queue := open(t)
			r := rig{t: t, ctx: t.Context(), store: store, queue: queue, agent: memory.Agent{
				ID: "0190-agent", Project: "acme", Name: "one", Status: memory.Running, StartMS: 1, Rev: 1,
			}}
			if _, _, err := store.Create(r.ctx, r.agent, 0, memory.Change{}); err != nil {
				t.Fatal(err)
			}
			test(r)
		})
	}
}

// endpoint returns an endpoint of the agent's project that wants the types.
func endpoint(id string, types ...int) webhook.Endpoint {
	e := webhook.Endpoint{ID: id, Project: "acme", URL: "https://" + id + ".example/hook"}
	for _, t := range types {
		e.Events = append(e.Events, eventtype.Name(t))
	}
	return e
}

// attempts returns the attempts of an event's deliveries, ordered by delivery and number.
func (r rig) attempts(eventID string) ([]webhook.Attempt, error) {
	page, err := r.queue.Deliveries(r.ctx, webhook.DeliveryQuery{Project: "acme", EventID: eventID, Limit: 100})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(page.Deliveries, func(a, b webhook.Record) int { return int(a.ID - b.ID) })
	var out []webhook.Attempt
	for _, d := range page.Deliveries {
		_, tries, err := r.queue.Delivery(r.ctx, "acme", d.ID)
		if err != nil {
			return nil, err
		}
		out = append(out, tries...)
	}
	return out, nil
}

func (r rig) put(list ...webhook.Endpoint) {
	r.t.Helper()
	for _, e := range list {
		if err := webhook.PutEndpoint(r.ctx, r.queue, e); err != nil {
			r.t.Fatalf("put endpoint %s: %v", e.ID, err)
		}
	}
}

// event returns an event whose time is ms.
func event(id string, eventType int, ms int64) memory.Event {
	return memory.Event{ID: id, Type: eventType, CreatedMS: ms, Body: []byte(`{"noticeId":"` + id + `"}`)}
}

func (r rig) emit(events ...memory.Event) {
	r.t.Helper()
	err := r.store.Update(r.ctx, r.agent.Project, r.agent.ID, func(memory.AgentView) (memory.Change, error) {
		return memory.Change{Events: events}, nil
	})
	if err != nil {
		r.t.Fatalf("emit: %v", err)
	}
}

const lease = 30 * time.Second

func (r rig) claim(now int64, limit int) []webhook.Delivery {
	r.t.Helper()
	return r.claimPer(now, limit, 0)
}

func (r rig) claimPer(now int64, limit, perEndpoint int) []webhook.Delivery {
	r.t.Helper()
	list, err := webhook.ClaimFrom(r.ctx, r.queue, webhook.Claim{NowMS: now, Limit: limit, PerEndpoint: perEndpoint, Lease: lease})
	if err != nil {
		r.t.Fatalf("claim: %v", err)
	}
	return list
}

// one claims and wants exactly one.
func (r rig) one(now int64) webhook.Delivery {
	r.t.Helper()
	list := r.claim(now, 10)
	if len(list) != 1 {
		r.t.Fatalf("claimed %v, want one", names(list))
	}
	return list[0]
}

// finish ends a claim; due is for Pending.
func (r rig) finish(d webhook.Delivery, state webhook.DeliveryState, due int64) {
	r.t.Helper()
	err := r.queue.Finish(r.ctx, d, webhook.Result{State: state, DueMS: due, Try: webhook.Attempt{N: d.Attempt}})
	if err != nil {
		r.t.Fatalf("finish %s: %v", d.EventID, err)
	}
}

// wantBacklog compares OldestPending only where want has it.
func (r rig) wantBacklog(want webhook.Backlog) {
	r.t.Helper()
	got, err := r.queue.Backlog(r.ctx)
	if err != nil {
		r.t.Fatal(err)
	}
	if want.OldestPending == 0 {
		got.OldestPending = 0
	}
	same(r.t, "backlog", got, want)
}

// names returns the deliveries as "event>endpoint".
func names(list []webhook.Delivery) []string {
	out := []string{}
	for _, d := range list {
		out = append(out, fmt.Sprintf("%s>%s", d.EventID, d.Endpoint.ID))
	}
	return out
}

func same(t *testing.T, what string, got, want any) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Fatalf("%s (-want +got):\n%s", what, d)
	}
}

func code(t *testing.T, err error, want fault.Code) {
	t.Helper()
	if fault.CodeOf(err) != want {
		t.Fatalf("error %v has code %q, want %q", err, fault.CodeOf(err), want)
	}
}
