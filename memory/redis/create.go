package redis

import (
	"context"
	"errors"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
)

// Create stores a new agent: its claim in the project, the agent, and the claim's confirmation.
func (s *Store) Create(ctx context.Context, a memory.Agent, limit int, c memory.Change) (stored memory.Agent, created bool, err error) {
	if c.Agent != nil {
		return memory.Agent{}, false, fault.New(fault.Internal, "a new agent's change holds an agent")
	}
	k := key{a.Project, a.ID}
	if err := check(k, c); err != nil {
		return memory.Agent{}, false, err
	}
	if len(c.Replace) > 0 {
		return memory.Agent{}, false, fault.New(fault.Internal, "a new agent's change replaces a message")
	}
	if ctx.Err() != nil {
		return memory.Agent{}, false, ended(ctx)
	}
	err = s.call(context.WithoutCancel(ctx), "create agent", func(ctx context.Context) (err error) {
		stored, created, err = s.create(ctx, k, a, limit, c)
		return err
	})
	return stored, created, err
}

func (s *Store) create(ctx context.Context, k key, a memory.Agent, limit int, c memory.Change) (memory.Agent, bool, error) {
	if _, known := s.projects.Load(a.Project); !known {
		if err := s.enlist(ctx, a.Project); err != nil {
			return memory.Agent{}, false, err
		}
	}
	for try := range maxTries {
		i := infoOf(token(), &a)
		i.Pending = s.Now().UnixMilli()
		answer, err := s.claim(ctx, k, &i, limit)
		if err != nil {
			if broken(err) {
				s.unclaim(ctx, k, i.Claim)
			}
			return memory.Agent{}, false, err
		}
		var refusal error
		var holders []string
		switch answer[0] {
		case "ok":
			i.no = answer[1]
			if answer[2] == "1" { // the project's first, or the first since the server has lost everything
				err = s.enlist(ctx, a.Project)
			}
			if err == nil {
				err = s.make(ctx, k, a, &i, c)
			}
			if errors.Is(err, errVoid) {
				continue
			}
			return a, err == nil, err
		case "join":
			v, err := s.current(ctx, key{a.Project, answer[1]})
			if err == nil {
				return v.head.Agent, false, nil
			}
			if !fault.Is(err, fault.NotFound) {
				return memory.Agent{}, false, err
			}
			refusal, holders = fault.New(fault.Unavailable, "the join of that Idempotency-Key is under way"), answer[1:2]
		case "name":
			err := fault.At(fault.Conflict, "name", "a running agent has the name %q already", a.Name)
			refusal, holders = &memory.NameTakenError{AgentID: answer[1], Err: err}, answer[1:2]
		case "key":
			refusal, holders = memory.KeyTaken(answer[2], answer[1]), answer[1:2]
		case "quota":
			refusal = fault.New(fault.Quota, "the project runs %d agents already, which is its limit", limit)
			if holders, err = s.claims(ctx, a.Project); err != nil {
				return memory.Agent{}, false, err
			}
			stale, err := s.staleLive(ctx, a.Project)
			if err != nil {
				return memory.Agent{}, false, err
			}
			holders = append(holders, stale...)
		case "id":
			refusal, holders = fault.New(fault.Conflict, "there is an agent %q already", a.ID), answer[1:2]
		default:
			return memory.Agent{}, false, errBadRow
		}
		// What stands in the way may be what a crash has left.
		wrong, err := s.settleAll(ctx, a.Project, holders)
		if err != nil {
			return memory.Agent{}, false, err
		}
		switch {
		case wrong:
		case answer[0] != "quota" && s.absent(ctx, key{a.Project, holders[0]}): // its maker has not come so far; whoever is told of it wants to find it
			pause(ctx, try+5)
		default:
			return memory.Agent{}, false, refusal
		}
		if try == maxTries-1 {
			return memory.Agent{}, false, refusal
		}
	}
	return memory.Agent{}, false, fault.New(fault.Unavailable, "others change what is in the way of agent %s all the time", a.ID)
}

// absent tells that there is no such agent.
func (s *Store) absent(ctx context.Context, k key) bool {
	stamp, err := s.stamp(ctx, k)
	return err == nil && stamp == "" && ctx.Err() == nil
}

// claim takes an agent's id, name and keys.
func (s *Store) claim(ctx context.Context, k key, i *info, limit int) ([]string, error) {
	text, err := i.encode()
	if err != nil {
		return nil, err
	}
	args := append([]string{k.id, text, itoa(i.Pending), itoa(int64(limit)), i.Name, i.JoinKey, flag(!i.Status.Ended())}, i.Own...)
	answer, err := s.eval(ctx, claimScript, s.projectKeys(k.project), args...).AsStrSlice()
	if err == nil && len(answer) == 0 {
		err = errBadRow
	}
	return answer, err
}

// unclaim takes a claim back whose answer was lost. Where it cannot, the claim stands until somebody looks whether its maker is dead.
func (s *Store) unclaim(ctx context.Context, k key, claim string) {
	text, err := s.entry(ctx, k)
	if err != nil || text == "" {
		return
	}
	if i, err := decodeInfo(text); err == nil && i.Claim == claim && i.Pending != 0 {
		_, _ = s.index(ctx, k, text, nil)
	}
}

// claims gives claims that are older than their makers may take.
func (s *Store) claims(ctx context.Context, project string) ([]string, error) {
	before := itoa(s.Now().UnixMilli() - claimAge)
	return s.client.Do(ctx, s.client.B().Zrangebyscore().Key(s.projectKey(project, kPending)).Min("-inf").Max(before).Limit(0, 100).Build()).AsStrSlice()
}

// make writes a claimed agent and confirms the claim.
func (s *Store) make(ctx context.Context, k key, a memory.Agent, i *info, c memory.Change) error {
	was, err := i.encode()
	if err != nil {
		return err
	}
	began := time.Now()
	err = s.write(ctx, k, a, i, c)
	s.observe(Commit{time.Since(began), err})
	sure := !broken(err)
	if !sure && ctx.Err() == nil { // the answer is lost: another connection can tell, and see to it that none is made any more
		made, asked := s.eval(ctx, voidScript, s.agentKeys(k), i.Claim, itoa(20*claimAge)).AsInt64()
		if asked == nil && made == 1 {
			err = nil
		}
		sure = asked == nil
	}
	if err != nil {
		if sure { // else it may be there, and the claim stands for it until somebody has looked
			if _, undo := s.index(ctx, k, was, nil); undo != nil {
				err = errors.Join(err, undo)
			}
		}
		return err
	}
	next := *i
	next.Pending, next.CheckMS = 0, s.checkMS(&a)
	done, err := s.index(ctx, k, was, &next)
	if err == nil && !a.Status.Ended() {
		err = s.announce(ctx, k)
	}
	if err == nil && !done { // somebody has settled it meanwhile, or the server has lost it
		err = s.reindex(ctx, k, i.Claim, &a)
	}
	if err != nil {
		s.owed.Store(k, true)
		s.notice("an agent was made and what finds it could not be written; it is put right when it is met: " + classify(err, "index").Error())
	}
	return nil
}

// write writes the agent itself.
func (s *Store) write(ctx context.Context, k key, a memory.Agent, i *info, c memory.Change) error {
	first := newView(i.Claim, 0, "", memory.NewHead(a, nil, 0), nil, true)
	made := c
	made.Agent = &a
	next := first.apply(made)
	next.head = first.head.Apply(c)
	args, err := s.commitArgs(i.Claim, next, made)
	if err != nil {
		return err
	}
	items, err := s.putItems(ctx, k, first, c)
	if err != nil {
		return err
	}
	err = s.written(s.eval(ctx, createScript, s.agentKeys(k), args...).AsStrSlice())
	if errors.Is(err, errTaken) { // an agent that the index has lost
		err = fault.New(fault.Conflict, "there is an agent %q already", k.id)
	}
	if err != nil {
		if !broken(err) {
			_ = s.dropItems(ctx, items.project, items.added)
		}
		return err
	}
	s.cache.put(k, next)
	return nil
}

// Erase takes an agent away with all that belongs to it.
func (s *Store) Erase(ctx context.Context, project, id string) error {
	return s.call(ctx, "erase agent", func(ctx context.Context) error {
		_, err := s.erase(ctx, key{project, id}, 0)
		return err
	})
}

// outOf takes an agent without an entry out of the lists of its project.
func (s *Store) outOf(ctx context.Context, k key) error {
	had := map[spot]string{}
	for _, at := range []int{kPending, kAll, kEnded, kCheck} {
		had[spot{at, "", k.id}] = ""
	}
	for st := range memory.Statuses {
		had[spot{kStatus + st, "", k.id}] = ""
	}
	_, err := s.place(ctx, k, "", had, nil)
	return err
}

// erase takes an agent away: itself first, so that nothing finds it that is not there; with a time, only if it has ended before.
func (s *Store) erase(ctx context.Context, k key, beforeMS int64) (bool, error) {
	for try := range maxTries {
		v, err := s.load(ctx, k)
		gone, claim := fault.Is(err, fault.NotFound), ""
		switch {
		case gone:
		case unreadable(err): // what is left of it goes by the stamp
			stamp, err := s.stamp(ctx, k)
			if err != nil {
				return false, err
			}
			claim = claimOf(stamp)
		case err != nil:
			return false, err
		default:
			claim = v.claim
			if a := &v.head.Agent; beforeMS != 0 && (!a.Status.Ended() || a.StopMS >= beforeMS) {
				return false, nil
			}
		}
		if !gone {
			n, err := s.eval(ctx, dropScript, s.agentKeys(k), claim+".").AsInt64()
			if err != nil {
				return false, err
			}
			if n < 0 { // another of the id by now
				pause(ctx, try)
				continue
			}
		}
		s.cache.Drop(k)
		text, err := s.entry(ctx, k)
		if err != nil {
			return false, err
		}
		if text == "" { // its entry is lost, and its places may not be
			if err := s.outOf(ctx, k); err != nil {
				return false, err
			}
			if !gone {
				if err := s.forgetItems(ctx, k, claim); err != nil {
					return false, err
				}
			}
		} else {
			i, err := decodeInfo(text)
			if err != nil {
				return false, err
			}
			switch {
			case gone && i.Pending != 0: // being made
			case !gone && i.Claim != claim:
			default:
				if err := s.release(ctx, k, text); err != nil {
					return false, err
				}
			}
		}
		if gone {
			return false, noAgent(k.id)
		}
		return true, nil
	}
	return false, fault.New(fault.Unavailable, "agent %s is made and erased all the time", k.id)
}
