package summary

import (
	"context"
	"encoding/json"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store/record"
)

// CallSummary is what was said in a whole call, in a few sentences.
type CallSummary struct {
	Text      string `json:"text"`
	CreatedMS int64  `json:"created_ms"` // Unix ms
}

// Calls makes and keeps the summaries of calls that have ended. All fields are required.
type Calls struct {
	Records record.Store
	// Messages pages through an agent's messages, and fails with fault.NotFound without the agent.
	Messages func(ctx context.Context, project, id string, q memory.MessageQuery) ([]memory.Message, error)
	// Ask asks the agent's LLM.
	Ask func(ctx context.Context, a memory.Agent, p Prompt) (Answer, error)
	// Note is called before a summary is stored, and fails it.
	Note func(ctx context.Context, a *memory.Agent) error
	Now  func() time.Time
}

// callSpace holds the summary of an agent's call, as its only record.
func callSpace(project, id string) record.Space {
	return record.Space{Project: project, Name: "call-summary/" + id}
}

const recordID = "summary"

// messagePage is how many messages of a call are read at a time.
const messagePage = 500

// Summarize stores a summary of a call that has ended. It reports false if nothing was said. Errors
// are those of Make.
func (c *Calls) Summarize(ctx context.Context, a *memory.Agent) (bool, error) {
	if have, err := c.Of(ctx, a.Project, a.ID); err != nil || have.Text != "" {
		return true, err // an earlier run was stopped after it had stored the summary
	}
	text := ""
	for after := int64(0); ; {
		msgs, err := c.Messages(ctx, a.Project, a.ID, memory.MessageQuery{AfterSeq: after, Limit: messagePage})
		if err != nil {
			return false, err
		}
		for lines := Transcript(msgs); len(lines) > 0 && said(lines); {
			n := Take(lines, text, DefaultLimits())
			if text, err = Make(ctx, callAsker{c, a}, lines[:n], text, DefaultLimits()); err != nil {
				return true, err
			}
			lines = lines[n:]
		}
		if len(msgs) < messagePage {
			break
		}
		after = msgs[len(msgs)-1].Seq
	}
	if text == "" {
		return false, nil
	}
	body, err := json.Marshal(CallSummary{text, c.Now().UnixMilli()})
	if err == nil {
		err = c.Note(ctx, a)
	}
	if err == nil {
		err = c.store(ctx, a.Project, a.ID, body)
	}
	if err != nil {
		return true, err
	}
	// The agent may have been erased meanwhile.
	if _, err = c.Messages(ctx, a.Project, a.ID, memory.MessageQuery{Limit: 1}); fault.Is(err, fault.NotFound) {
		return true, c.Forget(ctx, a.Project, a.ID)
	}
	return true, err
}

type callAsker struct {
	c *Calls
	a *memory.Agent
}

// Ask implements Asker.
func (a callAsker) Ask(ctx context.Context, p Prompt) (Answer, error) { return a.c.Ask(ctx, *a.a, p) }

// Of returns the summary of an agent's call, the zero value if there is none.
func (c *Calls) Of(ctx context.Context, project, id string) (s CallSummary, err error) {
	list, _, err := c.Records.Records(ctx, callSpace(project, id), record.Query{Limit: 1})
	if err == nil && len(list) > 0 {
		err = json.Unmarshal(list[0].Body, &s)
	}
	return s, err
}

// Forget deletes the summary of an agent's call.
func (c *Calls) Forget(ctx context.Context, project, id string) error {
	s, err := c.Of(ctx, project, id)
	if err != nil || s.Text == "" {
		return err
	}
	return c.store(ctx, project, id, nil)
}

// store sets the record of a call; a nil body deletes it.
func (c *Calls) store(ctx context.Context, project, id string, body []byte) error {
	changes := []record.Change{{ID: recordID, Body: body, If: record.Any}}
	_, err := c.Records.ChangeRecords(ctx, callSpace(project, id), changes, record.Limit{}, nil, c.Now().UnixMilli())
	return err
}
