package redis

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/rueidis"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
)

// What finds an agent stands in the slot of its project, and the agent in its own, so that no script can write both. The project is written first: a claim takes the id, the name and the keys; then
// the agent is made; then the claim is confirmed. When an agent ends, the agent is written first. A crash between two of these leaves an entry that says less or more than
// there is. Whoever meets it puts it right (settle): a name that somebody else wants, a list that shows it, a sweep. An entry is changed only from what it was read as, so that none of them undoes what another did.

// info is the entry of an agent: all that its places in the index are made of.
type info struct {
	no string // in the order in which they were made, 16 digits

	Claim   string        `json:"t"`
	Rev     int64         `json:"r"` // of the agent when this was written
	Status  memory.Status `json:"s"`
	Name    string        `json:"n,omitempty"`
	Channel string        `json:"c,omitempty"`
	StartMS int64         `json:"a"`
	StopMS  int64         `json:"z,omitempty"`
	JoinKey string        `json:"j,omitempty"`
	Own     []string      `json:"k,omitempty"`
	Shared  []string      `json:"h,omitempty"`
	Pending int64         `json:"p,omitempty"` // when the claim was made, ms; 0 = the agent was seen
	CheckMS int64         `json:"x,omitempty"` // when its keys may have expired
}

func infoOf(claim string, a *memory.Agent) info {
	return info{
		Claim: claim, Rev: a.Rev, Status: a.Status, Name: a.Name, Channel: a.Settings.Channel, StartMS: a.StartMS, StopMS: a.StopMS,
		JoinKey: a.JoinKey, Own: a.Settings.Call.Keys, Shared: a.Settings.Call.Shared,
	}
}

// differs tells whether a change of an agent concerns the index.
func differs(a, b *memory.Agent) bool {
	return a.Status != b.Status || a.Name != b.Name || a.Settings.Channel != b.Settings.Channel || a.StartMS != b.StartMS || a.StopMS != b.StopMS ||
		!slices.Equal(a.Settings.Call.Keys, b.Settings.Call.Keys) || !slices.Equal(a.Settings.Call.Shared, b.Settings.Call.Shared)
}

func (i info) encode() (string, error) {
	b, err := json.Marshal(i)
	return i.no + string(b), err
}

const noDigits = 16

func decodeInfo(text string) (i info, err error) {
	if len(text) < noDigits {
		return i, errBadRow
	}
	if err := json.Unmarshal([]byte(text[noDigits:]), &i); err != nil {
		return i, fmt.Errorf("an entry: %w: %w", err, errBadRow)
	}
	i.no = text[:noDigits]
	return i, nil
}

// spot is a place in the index: a member of a zset, or a field of a hash.
type spot struct {
	key   int
	field string // of a hash; "" in a zset
	value string // the member, or the field's value
}

// spots gives where an agent stands, with the scores of those that are in zsets.
func (i *info) spots(id string) map[spot]string {
	out := map[spot]string{}
	live := !i.Status.Ended()
	if i.Pending != 0 {
		out[spot{kPending, "", id}] = itoa(i.Pending)
	} else {
		out[spot{kAll, "", id}] = "0"
		out[spot{kStatus + int(i.Status), "", id}] = "0"
		if i.CheckMS != 0 {
			out[spot{kCheck, "", id}] = itoa(i.CheckMS)
		}
		for _, k := range slices.Concat(i.Own, i.Shared) {
			out[spot{kFind, "", enc(k) + " " + flag(live) + i.no + id}] = "0"
		}
		if !live {
			out[spot{kEnded, "", id}] = itoa(i.StopMS)
			if i.Name != "" {
				out[spot{kLast, "", enc(i.Name) + " " + fmt.Sprintf("%020d", max(i.StopMS, 0)) + i.no + id}] = "0"
			}
		}
	}
	if i.JoinKey != "" {
		out[spot{kJoins, i.JoinKey, id}] = ""
	}
	if live {
		if i.Name != "" {
			out[spot{kNames, i.Name, id}] = ""
		}
		for _, k := range i.Own {
			out[spot{kOwn, k, id}] = ""
		}
	}
	return out
}

// index changes an agent's entry, and its places with it; next nil takes it away. It tells false where the entry is not old any more.
func (s *Store) index(ctx context.Context, k key, oldText string, next *info) (bool, error) {
	had := map[spot]string{}
	if oldText != "" {
		old, err := decodeInfo(oldText)
		if err != nil {
			return false, err
		}
		had = old.spots(k.id)
	}
	return s.place(ctx, k, oldText, had, next)
}

// place is index where it is known in which places the agent stands.
func (s *Store) place(ctx context.Context, k key, oldText string, had map[spot]string, next *info) (bool, error) {
	has := map[spot]string{}
	text := ""
	if next != nil {
		var err error
		if text, err = next.encode(); err != nil {
			return false, err
		}
		has = next.spots(k.id)
	}
	args := []string{k.id, oldText, text}
	add := func(what string, at spot, a, b string) { args = append(args, what, strconv.Itoa(at.key+1), a, b) }
	for at := range had {
		if _, stays := has[at]; stays {
			continue
		}
		if at.field == "" {
			add("zrem", at, "", at.value)
		} else {
			add("hdel", at, at.field, at.value)
		}
	}
	for at, score := range has {
		if was, there := had[at]; there && was == score {
			continue
		}
		if at.field == "" {
			add("zadd", at, score, at.value)
		} else {
			add("hset", at, at.field, at.value)
		}
	}
	n, err := s.eval(ctx, indexScript, s.projectKeys(k.project), args...).AsInt64()
	return n == 1, err
}

// entry gives an agent's entry as it is stored, "" where there is none.
func (s *Store) entry(ctx context.Context, k key) (string, error) {
	text, err := s.client.Do(ctx, s.client.B().Hget().Key(s.projectKey(k.project, kInfo)).Field(k.id).Build()).ToString()
	if rueidis.IsRedisNil(err) {
		return "", nil
	}
	return text, err
}

// checkMS gives when an agent's keys may have expired.
func (s *Store) checkMS(a *memory.Agent) int64 {
	switch {
	case s.ttl == 0 || a.StopMS == math.MaxInt64:
		return 0
	case a.Status.Ended():
		return s.Now().Add(s.ttl).UnixMilli() + 1000
	}
	return s.Now().Add(s.life).UnixMilli() + 1000
}

// reindexed brings an agent's entry up to a change that is stored. Where that fails the change is stored all the same: settle puts the entry right when it is met.
func (s *Store) reindexed(ctx context.Context, k key, claim string, a *memory.Agent) {
	if err := s.reindex(ctx, k, claim, a); err != nil {
		s.owed.Store(k, true)
		s.notice("an agent has changed and what finds it could not be written; it is put right when it is met: " + classify(err, "index").Error())
	}
}

func (s *Store) reindex(ctx context.Context, k key, claim string, a *memory.Agent) error {
	for try := range maxTries {
		text, err := s.entry(ctx, k)
		if err != nil {
			return err
		}
		next := infoOf(claim, a)
		next.CheckMS = s.checkMS(a)
		if text != "" {
			old, err := decodeInfo(text)
			if err != nil {
				return err
			}
			if old.Claim != claim || old.Rev > a.Rev { // another agent of the id, or a later change of this one
				return nil
			}
			next.no = old.no
			if old.Status.Ended() && next.Status.Ended() {
				next.CheckMS = old.CheckMS // its end is not put off
			}
		} else if next.no, err = s.nextNo(ctx, k.project); err != nil { // the server has lost it
			return err
		}
		if done, err := s.index(ctx, k, text, &next); done || err != nil {
			return err
		}
		pause(ctx, try)
	}
	return errors.New("the entry changes all the time")
}

func (s *Store) nextNo(ctx context.Context, project string) (string, error) {
	n, err := s.client.Do(ctx, s.client.B().Incr().Key(s.projectKey(project, kNo)).Build()).AsInt64()
	return fmt.Sprintf("%0*d", noDigits, n), err
}

// claimAge is how old a claim must be before somebody else looks whether its maker is dead. It is longer than a call may take.
const claimAge = 30_000

// settle puts right what the index says of an agent, if it is not so, and tells whether it was wrong. A claim whose agent is not made yet is left alone for as long as its maker may take.
func (s *Store) settle(ctx context.Context, k key) (bool, error) {
	text, err := s.entry(ctx, k)
	if err != nil || text == "" {
		return false, err
	}
	i, err := decodeInfo(text)
	if err != nil {
		return false, err
	}
	v, err := s.current(ctx, k)
	switch {
	case err == nil && v.claim == i.Claim:
		a := &v.head.Agent
		if i.Pending == 0 && i.Status == a.Status && i.StopMS == a.StopMS && i.Name == a.Name && i.Channel == a.Settings.Channel &&
			slices.Equal(i.Own, a.Settings.Call.Keys) && slices.Equal(i.Shared, a.Settings.Call.Shared) {
			return false, nil
		}
		err := s.reindex(ctx, k, v.claim, a)
		if err == nil && i.Pending != 0 && !a.Status.Ended() { // its maker did not come to tell of it
			err = s.announce(ctx, k)
		}
		return true, err
	case unreadable(err): // nobody knows what it is, which is no reason not to put others right
		return false, nil
	case err != nil && !fault.Is(err, fault.NotFound):
		return false, err
	}
	if i.Pending != 0 {
		if s.Now().UnixMilli()-i.Pending < claimAge {
			return false, nil
		}
		keys := s.agentKeys(k)
		made, err := s.eval(ctx, voidScript, keys, i.Claim, itoa(20*claimAge)).AsInt64()
		if err != nil || made == 1 {
			return made == 1, err
		}
	}
	return true, s.release(ctx, k, text)
}

// release takes the entry of an agent away that is no more, with its items.
func (s *Store) release(ctx context.Context, k key, text string) error {
	i, err := decodeInfo(text)
	if err != nil {
		return err
	}
	if err := s.forgetItems(ctx, k, i.Claim); err != nil {
		return err
	}
	if err := s.client.Do(ctx, s.client.B().Zrem().Key(s.projectKey(k.project, kWorkDue)).Member(k.id).Build()).Error(); err != nil {
		return err
	}
	_, err = s.index(ctx, k, text, nil)
	return err
}

// due has the agent's entry looked at once the call must be over, whatever becomes of us meanwhile. Where that fails the end is written all the same: whoever wants the agent's place finds out then.
func (s *Store) due(ctx context.Context, k key) {
	at := itoa(s.Now().Add(s.timeout).UnixMilli())
	_ = s.client.Do(ctx, s.client.B().Arbitrary("ZADD").Keys(s.projectKey(k.project, kCheck)).Args("LT", at, k.id).Build()).Error()
}

// staleLive gives some of the project's agents that count as live and are not. It looks at a hundred of each status, others each time.
func (s *Store) staleLive(ctx context.Context, project string) (stale []string, err error) {
	var cmds rueidis.Commands
	for _, st := range liveStatuses() {
		cmds = append(cmds, s.client.B().Zrandmember().Key(s.projectKey(project, kStatus+int(st))).Count(100).Build())
	}
	var ids []string
	for _, answer := range s.client.DoMulti(ctx, cmds...) {
		part, err := answer.AsStrSlice()
		if err != nil {
			return nil, err
		}
		ids = append(ids, part...)
	}
	if len(ids) == 0 {
		return nil, nil
	}
	cmds = nil
	for _, id := range ids {
		cmds = append(cmds, s.client.B().Hget().Key(s.agentKey(key{project, id}, kHead)).Field("s").Build())
	}
	for i, answer := range s.client.DoMulti(ctx, cmds...) {
		text, err := answer.ToString()
		if err != nil && !rueidis.IsRedisNil(err) {
			return nil, err
		}
		if n, err := strconv.Atoi(text); err != nil || memory.Status(n).Ended() {
			stale = append(stale, ids[i])
		}
	}
	return stale, nil
}

// settleAll settles agents and tells whether something was wrong.
func (s *Store) settleAll(ctx context.Context, project string, ids []string) (bool, error) {
	wrong := false
	for _, id := range ids {
		was, err := s.settle(ctx, key{project, id})
		if err != nil {
			return wrong, err
		}
		wrong = wrong || was
	}
	return wrong, nil
}

// projectList gives all projects. It is no part of a caller's request.
func (s *Store) projectList(ctx context.Context) ([]string, error) {
	list, err := s.client.Do(ctx, s.client.B().Smembers().Key(s.rootKey("projects")).Build()).AsStrSlice()
	slices.Sort(list)
	return list, err
}

// enlist puts a project on the list.
func (s *Store) enlist(ctx context.Context, project string) error {
	err := s.client.Do(ctx, s.client.B().Sadd().Key(s.rootKey("projects")).Member(project).Build()).Error()
	if err == nil {
		s.projects.Store(project, true)
	}
	return err
}

// byText gives the last members of a zset by text that begin so.
func (s *Store) byText(ctx context.Context, at, begin string, n int64) ([]string, error) {
	return s.client.Do(ctx, s.client.B().Zrevrangebylex().Key(at).Max("("+begin+"\xff").Min("["+begin).Limit(0, n).Build()).AsStrSlice()
}

// foundAgain is how many wrong entries one look passes over, putting them right.
const foundAgain = 20

// found gives the agent of the last member that begins so and is right; "" for none.
func (s *Store) found(ctx context.Context, project string, which int, begin string, right func(*memory.Agent) bool) (string, error) {
	for range foundAgain {
		list, err := s.byText(ctx, s.projectKey(project, which), begin, 1)
		if err != nil || len(list) == 0 {
			return "", err
		}
		_, id, _ := strings.Cut(list[0], " ")
		if which == kFind {
			id = id[1+noDigits:]
		} else {
			id = id[20+noDigits:]
		}
		v, err := s.current(ctx, key{project, id})
		if err != nil && !fault.Is(err, fault.NotFound) {
			return "", err
		}
		if err == nil && right(&v.head.Agent) {
			return id, nil
		}
		if wrong, err := s.settle(ctx, key{project, id}); err != nil || !wrong {
			return "", err
		}
	}
	return "", nil
}

// ByKey gives the id of the agent that a key finds.
func (s *Store) ByKey(ctx context.Context, project, callKey string) (id string, err error) {
	err = s.read(ctx, "look for the key", func(ctx context.Context) (err error) {
		id, err = s.found(ctx, project, kFind, enc(callKey)+" ", func(*memory.Agent) bool { return true })
		if err == nil && id == "" {
			id, err = s.owner(ctx, project, callKey)
		}
		if err == nil && id == "" {
			err = fault.New(fault.NotFound, "no agent has the key %q", callKey)
		}
		return err
	})
	return id, err
}

// owner gives the agent that has claimed a key and was made, where the claim is not confirmed; "" for none.
func (s *Store) owner(ctx context.Context, project, callKey string) (string, error) {
	id, err := s.client.Do(ctx, s.client.B().Hget().Key(s.projectKey(project, kOwn)).Field(callKey).Build()).ToString()
	if rueidis.IsRedisNil(err) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	if _, err := s.settle(ctx, key{project, id}); err != nil {
		return "", err
	}
	if stamp, err := s.stamp(ctx, key{project, id}); err != nil || stamp == "" {
		return "", err
	}
	return id, nil
}

// LastNamed gives the id of the agent of that name which ended last.
func (s *Store) LastNamed(ctx context.Context, project, name string) (id string, err error) {
	err = s.read(ctx, "look for the name", func(ctx context.Context) (err error) {
		id, err = s.found(ctx, project, kLast, enc(name)+" ", func(a *memory.Agent) bool { return a.Status.Ended() })
		if err == nil && id == "" {
			err = fault.New(fault.NotFound, "no agent of the name %q has ended", name)
		}
		return err
	})
	return id, err
}
