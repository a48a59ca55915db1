package replay

import (
	"context"
	"strconv"
	"strings"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/peek"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/requests"
	"github.com/heardlog/heardlog/memory/window"
)

// Selection is whose requests are asked again: those of one turn or, if Agent is "", those of the
// newest turns of the calls that a query finds.
type Selection struct {
	Agent string
	Turn  int64

	Query memory.AgentQuery // Limit is how many calls; at most MaxCalls
	Words string            // see agents.Agents.Find
	Turns int               // of each call; at most MaxTurns
}

// Plan is a replay that has not been started.
type Plan struct {
	Estimate
	Change
	Targets []Target

	bytes    int
	unpriced bool
}

// Plan selects the requests of a replay and estimates what they cost. It fails with fault.NotFound
// if there is no such call or turn, and with fault.Invalid if there is nothing to ask again, or too
// much.
func (s *Service) Plan(ctx context.Context, project string, sel Selection, c Change) (*Plan, error) {
	p := &Plan{Change: c}
	var err error
	if sel.Agent != "" {
		err = s.addTurn(ctx, p, project, sel.Agent, sel.Turn)
		if err == nil && len(p.Targets)+p.Skipped == 0 {
			err = fault.At(fault.NotFound, "turn_id", "call %q has no request to an LLM in turn %d", sel.Agent, sel.Turn)
		}
	} else {
		err = s.addCalls(ctx, p, project, sel)
	}
	if err != nil {
		return nil, err
	}
	if len(p.Targets) == 0 {
		return nil, fault.New(fault.Invalid, "nothing that is selected can be asked again: %d requests are not stored to the byte", p.Skipped)
	}
	if p.Requests = len(p.Targets); p.unpriced {
		p.Cost = nil
	}
	return p, nil
}

// addCalls adds the newest turns of the calls that a query finds.
func (s *Service) addCalls(ctx context.Context, p *Plan, project string, sel Selection) error {
	q, calls := sel.Query, 0
	for range maxFindPages {
		page, err := s.cfg.Memory.Agents.Find(ctx, q, sel.Words)
		if err != nil {
			return err
		}
		for i := range page.Heads {
			if calls++; calls > sel.Query.Limit {
				return nil
			}
			if err := s.addCall(ctx, p, project, &page.Heads[i], sel.Turns); err != nil && !fault.Is(err, fault.NotFound) {
				return err // NotFound: it was erased meanwhile
			}
		}
		if q.After = page.Next; q.After == (memory.AgentPlace{}) {
			break
		}
	}
	return nil
}

// addCall adds the newest turns of a call, of its newest 1000 messages.
func (s *Service) addCall(ctx context.Context, p *Plan, project string, h *memory.Head, turns int) error {
	msgs, err := s.cfg.Memory.Messages.Page(ctx, project, h.Agent.ID, memory.MessageQuery{AfterSeq: max(0, h.NextSeq-1001), Limit: 1000})
	if err != nil {
		return err
	}
	seen := map[int64]bool{}
	from := len(msgs)
	for i := len(msgs) - 1; i >= 0; i-- {
		if msgs[i].Made().Request == nil {
			continue
		}
		if !seen[msgs[i].TurnID] && len(seen) == turns {
			break
		}
		seen[msgs[i].TurnID], from = true, i
	}
	for _, m := range msgs[from:] {
		if err := s.add(ctx, p, project, h.Agent.ID, m); err != nil {
			return err
		}
	}
	return nil
}

func (s *Service) addTurn(ctx context.Context, p *Plan, project, agent string, turn int64) error {
	if _, err := s.cfg.Memory.Messages.Head(ctx, project, agent); err != nil {
		return err
	}
	msgs, err := s.cfg.Memory.Messages.Page(ctx, project, agent, memory.MessageQuery{Turn: &turn, Limit: 1000})
	if err != nil {
		return err
	}
	for _, m := range msgs {
		if err := s.add(ctx, p, project, agent, m); err != nil {
			return err
		}
	}
	return nil
}

// add adds the request of an answer, if it has one.
func (s *Service) add(ctx context.Context, p *Plan, project, agent string, m memory.Message) error {
	if m.Made().Request == nil {
		return nil
	}
	t, err := requests.ForAnswer(ctx, s.cfg.Memory.Messages, project, agent, m)
	if err != nil {
		return err
	}
	if !t.Exact || !valid(t.Body) {
		p.Skipped++
		return nil
	}
	body := p.apply(t.Body)
	p.Targets = append(p.Targets, Target{agent, m.TurnID, m.Seq})
	if p.bytes += len(body); len(p.Targets) > MaxRequests || p.bytes > MaxBytes {
		return fault.New(fault.Invalid, "this selects more than %d requests, or more than %d bytes of them; select fewer calls or turns", MaxRequests, MaxBytes)
	}
	return s.price(p, body, m.Produced()+string(m.ToolCalls))
}

// price adds what a request will take.
func (s *Service) price(p *Plan, body []byte, answer string) error {
	model := peek.At(body, "model").Str()
	counter, err := s.cfg.Count(familyOf(model))
	if err != nil {
		return err
	}
	var list []window.Message
	for _, v := range peek.At(body, "messages").List() {
		m := window.Message{Role: window.Role(v.At("role").Str()), ToolCalls: nonNull(v.At("tool_calls")), ToolCallID: v.At("tool_call_id").Str(), ToolName: v.At("name").Str()}
		if c := v.At("content"); c.IsString() {
			m.Text = c.Str()
		} else {
			m.Parts = nonNull(c)
		}
		list = append(list, m)
	}
	if tools := peek.At(body, "tools"); tools.Exists() {
		list = append(list, window.Message{Text: string(tools)})
	}
	in, out := int64(window.EstimateTokens(list, counter)), int64(window.EstimateTokens([]window.Message{{Text: answer}}, counter))
	p.Input, p.Output = p.Input+in, p.Output+out
	usage := `{"prompt_tokens":` + strconv.FormatInt(in, 10) + `,"completion_tokens":` + strconv.FormatInt(out, 10) + `}`
	cost := s.cfg.Prices.CostOf(model, []byte(usage), 0, "")
	if cost == nil {
		p.unpriced = true
		return nil
	}
	if p.Cost == nil {
		p.Cost = &memory.Cost{Estimated: true}
	}
	p.Cost.In, p.Cost.Out = p.Cost.In+cost.In, p.Cost.Out+cost.Out
	return nil
}

func nonNull(v peek.Value) []byte {
	if v.IsNull() {
		return nil
	}
	return v
}

// familyOf returns the vocabulary by which a model's tokens are counted: that of its family, or
// OpenAI's newest one, which is near enough for an estimate of others.
func familyOf(model string) string {
	best := "o200k"
	for _, f := range window.Families() {
		if strings.HasPrefix(model, f) && (best == "o200k" || len(f) > len(best)) {
			best = f
		}
	}
	return best
}
