// Package storetest is the contracts of the stores as tests: ledger, records, keys and values,
// memories. Every driver runs it.
package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
)

// Run runs the contract. open returns an empty store of the test's own and closes it when the test
// ends.
func Run(t *testing.T, open func(*testing.T) memory.Ledger) {
	for name, test := range map[string]func(*testing.T, context.Context, memory.Ledger){
		"CreateKeepsEverything":      testCreateKeepsEverything,
		"CreateWithMessages":         testCreateWithMessages,
		"CreateEnded":                testCreateEnded,
		"CreateNameTaken":            testCreateNameTaken,
		"CreateNameRace":             testCreateNameRace,
		"CreateQuota":                testCreateQuota,
		"CreateSessions":             testCreateSessions,
		"CreateJoinKey":              testCreateJoinKey,
		"CreateIDTaken":              testCreateIDTaken,
		"CreateFailsWhole":           testCreateFailsWhole,
		"Keys":                       testKeys,
		"LastNamed":                  testLastNamed,
		"KeysRace":                   testKeysRace,
		"UpdateAgent":                testUpdateAgent,
		"UnknownAgents":              testUnknownAgents,
		"Tenants":                    testTenants,
		"AppendInOrder":              testAppendInOrder,
		"AppendKeepsEveryField":      testAppendKeepsEveryField,
		"AppendAllOrNone":            testAppendAllOrNone,
		"AppendAtSeqKeptFree":        testAppendAtSeqKeptFree,
		"ClientIDs":                  testClientIDs,
		"Replace":                    testReplace,
		"ReplaceOld":                 testReplaceOld,
		"ReplaceUnknown":             testReplaceUnknown,
		"DecideErrors":               testDecideErrors,
		"DecidePanics":               testDecidePanics,
		"DecideNothing":              testDecideNothing,
		"DecideReads":                testDecideReads,
		"DecideReadsLongLedger":      testDecideReadsLongLedger,
		"Revisions":                  testRevisions,
		"PageByRev":                  testPageByRev,
		"PageBySeq":                  testPageBySeq,
		"PageMatchesLedger":          testPageMatchesLedger,
		"Recent":                     testRecent,
		"RecentHistoryOnly":          testRecentHistoryOnly,
		"RecentSharesNothingWritten": testRecentSharesNothingWritten,
		"ListFilters":                testListFilters,
		"ListPages":                  testListPages,
		"ListTags":                   testListTags,
		"ListHappenings":             testListHappenings,
		"Tally":                      testTally,
		"ListPicks":                  testListPicks,
		"ListWhileAgentsComeAndGo":   testListWhileAgentsComeAndGo,
		"ListThenHead":               testListThenHead,
		"Live":                       testLive,
		"Count":                      testCount,
		"Sweep":                      testSweep,
		"SweepLimit":                 testSweepLimit,
		"SweepFreesKeys":             testSweepFreesKeys,
		"Erase":                      testErase,
		"EraseRace":                  testEraseRace,
		"ConcurrentOneAgent":         testConcurrentOneAgent,
		"ConcurrentManyAgents":       testConcurrentManyAgents,
		"ConcurrentReadYourWrites":   testConcurrentReadYourWrites,
		"FailingNeighbours":          testFailingNeighbours,
		"DatabaseErrorsOfNeighbours": testDatabaseErrorsOfNeighbours,
		"Canceled":                   testCanceled,
		"Ping":                       testPing,
		"Closed":                     testClosed,
	} {
		t.Run(name, func(t *testing.T) { t.Parallel(); test(t, t.Context(), open(t)) })
	}
}

// project is the tenant of most cases.
const project = "acme"

// newAgent returns a live agent. IDs grow with n, as UUIDv7 do with time.
func newAgent(n int) memory.Agent {
	return memory.Agent{
		ID: fmt.Sprintf("01900000-0000-7000-8000-%012d", n), Project: project, Name: fmt.Sprintf("name-%d", n),
		Status: memory.Running, StartMS: int64(1_780_000_000_000 + n), Rev: 1,
		Settings: memory.Settings{Channel: "lobby", IdleTimeoutS: 30},
	}
}

func create(t *testing.T, ctx context.Context, s memory.Ledger, a memory.Agent) memory.Agent {
	t.Helper()
	stored, created, err := s.Create(ctx, a, 0, memory.Change{})
	if err != nil || !created {
		t.Fatalf("create %s: created %v, err %v", a.ID, created, err)
	}
	return stored
}

// says returns a decision that appends one message for each text, each in a turn of its own.
func says(texts ...string) memory.Decision {
	return func(view memory.AgentView) (memory.Change, error) {
		h := view.Head()
		var c memory.Change
		for i, text := range texts {
			c.Append = append(c.Append, memory.Message{
				Seq: h.NextSeq + int64(i), Rev: h.Rev + 1, Role: memory.User, Content: text, TurnID: h.LastTurn + 1 + int64(i),
				Timestamp: 1_780_000_000_000, Source: memory.SourceASR,
			})
		}
		return c, nil
	}
}

func update(t *testing.T, ctx context.Context, s memory.Ledger, a memory.Agent, decide memory.Decision) {
	t.Helper()
	if err := s.Update(ctx, a.Project, a.ID, decide); err != nil {
		t.Fatalf("update %s: %v", a.ID, err)
	}
}

// ledger reads the whole ledger in pages.
func ledger(t *testing.T, ctx context.Context, s memory.Ledger, a memory.Agent) []memory.Message {
	t.Helper()
	var out []memory.Message
	for after := int64(0); ; {
		page, err := s.Messages(ctx, a.Project, a.ID, memory.MessageQuery{AfterSeq: after, Limit: 100})
		if err != nil {
			t.Fatalf("messages: %v", err)
		}
		out = append(out, page...)
		if len(page) < 100 {
			return out
		}
		after = page[len(page)-1].Seq
	}
}

func head(t *testing.T, ctx context.Context, s memory.Ledger, a memory.Agent) memory.Head {
	t.Helper()
	h, err := s.Head(ctx, a.Project, a.ID)
	if err != nil {
		t.Fatalf("head: %v", err)
	}
	return h
}

func contents(list []memory.Message) []string {
	out := make([]string, 0, len(list))
	for _, m := range list {
		out = append(out, m.Content)
	}
	return out
}

// wantCode and wantSame do not end the test, since decisions call them too.
func wantCode(t *testing.T, err error, code fault.Code) {
	t.Helper()
	if fault.CodeOf(err) != code {
		t.Errorf("error %v has code %q, want %q", err, fault.CodeOf(err), code)
	}
}

func wantSame(t *testing.T, what string, got, want any) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

// end returns a decision that ends the agent.
func end(status memory.Status, stopMS int64) memory.Decision {
	return func(view memory.AgentView) (memory.Change, error) {
		h := view.Head()
		a := *h.Agent
		a.Status, a.StopMS, a.Message, a.Rev = status, stopMS, memory.EndOK, h.Rev+1
		return memory.Change{Agent: &a}, nil
	}
}

var errRefused = errors.New("refused by the decision")

func raw(s string) json.RawMessage { return json.RawMessage(s) }

// fullMessage has every field set.
func fullMessage(seq, rev int64) memory.Message {
	importance := 0.75
	return memory.Message{
		Seq: seq, Rev: rev, ID: "client-1", Role: memory.Assistant, Content: "Good \"morning\",\n\\ café \u2028 \U0001F600 \x01 <b>&",
		TurnID: 3, Timestamp: 1_780_000_000_123, Source: memory.SourceLLM, State: memory.Superseded,
		Metadata:    map[string]json.RawMessage{"k": raw(`{"a":[1,2.50,"x\u0041"]}`), "nothing": raw(`null`), "é\"": raw(`1e3`)},
		Interrupted: true, InterruptMS: 1_780_000_000_456, InterruptBy: "start_of_speech", Generated: "all of it", Sent: "most",
		CutGenerated: true, Method: memory.WordTimes, EvidenceMS: 77, Confidence: 95, ToolCalls: raw(`[{"id":"c1","type":"function"}]`), ToolCallID: "c0",
		ToolName: "weather", Parts: raw(`[{"type":"text","text":"hi"}]`), AnswerSeq: seq + 1, TurnHasUser: true,
		Timings: &memory.Timings{StartMS: 1, FirstTokenMS: 2, FirstSentenceMS: 3, TotalMS: 4, UpstreamFirstByteMS: 2, UpstreamBytes: 6},
		Failure: &memory.Failure{Reason: "LLM_REQUEST_ERR", Code: 502, Message: "bad\tgateway"}, FinishRsn: "stop",
		Usage: raw(`{"total_tokens":12}`), UpstreamID: "chatcmpl-1",
		Status: memory.Discarded, Chars: 23,
		Details: &memory.Details{
			Heard: memory.Heard{InterruptMSFrom: memory.AudioMS, InterruptByFrom: memory.VendorText, UnheardTokens: 7},
			Made: memory.Made{
				Upstream: "spare", Filler: "Let me see.", WithThoughts: "<think>Hm.</think>Hi.",
				Request: &memory.Request{
					Base: 2, Resent: true, Policy: memory.Limits{Strategy: "summarize", MaxMessages: 5, MaxTokens: 900}, URL: "https://llm.example/v1",
					Tries: []memory.Try{{Upstream: "primary", SentMS: 1, Error: "503"}, {Upstream: "spare", SentMS: 90}}, Rev: 3, Of: 1,
					Parts: []memory.RequestPart{{Text: "{\"messages\":[\u2028é"}, {From: 2, Count: 3}, {Text: ",{}", Seqs: []int64{2, 3}}}, Unplaced: []int64{1},
				},
			},
			Filed: memory.Filed{
				Scope: memory.Scope{UserID: "u\"1", SessionID: "s", TaskID: "t"}, Importance: &importance, Category: "episodic",
				Item: &memory.Item{ID: "0123456789abcdef0123456789abcdef", AgentID: "a", Extra: raw(`{"k":[1.50]}`), UpdatedMS: 9, IsError: true},
				Raw:  `{"role":"assistant", "n":1.50,"s":"\u00e9<&>"}`,
			},
		},
	}
}
