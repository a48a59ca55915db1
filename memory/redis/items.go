package redis

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/rueidis"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
)

// What finds messages as items stands in the slot of the items' project. It is written before the messages are, so that nothing stored is missing there; what it names that is not stored, since the change failed
// or its agent is gone, is passed over by whoever reads it, and goes when its agent's entry goes.

// itemPlace is where an item stands: in a ledger of the items' project, or of its own one. Several attempts to write one seq differ in what, so that none of them takes another's row for its own.
type itemPlace struct {
	own   bool
	claim string
	what  string // made of what the row says
	seq   int64
	agent string
}

func (p itemPlace) String() string {
	return flag(p.own) + p.claim + "." + p.what + " " + itoa(p.seq) + " " + p.agent
}

// placeOf gives the place of a row of a message in the ledger of k.
func placeOf(k key, claim string, seq int64, r memory.ItemRow) itemPlace {
	row := itemRow{ID: r.ID, Scope: r.Scope, Agent: r.AgentID}
	return itemPlace{r.Project != k.project, claim, row.what(), seq, k.id}
}

func parsePlace(text string) (p itemPlace, ok bool) {
	head, rest, ok := strings.Cut(text, " ")
	seq, agent, ok2 := strings.Cut(rest, " ")
	n, err := strconv.ParseInt(seq, 10, 64)
	if !ok || !ok2 || err != nil || head == "" {
		return p, false
	}
	claim, what, _ := strings.Cut(head[1:], ".")
	return itemPlace{head[0] == '1', claim, what, n, agent}, true
}

// ledger gives the agent whose ledger it is.
func (p itemPlace) ledger(project string) key {
	if p.own {
		project = memory.OwnProject(project)
	}
	return key{project, p.agent}
}

// itemRow is a row as it is stored.
type itemRow struct {
	ID    string       `json:"id"`
	Scope memory.Scope `json:"scope"`
	Agent string       `json:"agent,omitempty"`
	// By names the attempt that made the row; one that found it there has put its own name, and a dash in front: nobody takes that away again whose commit fails.
	By string `json:"by,omitempty"`
}

// what gives a text that rows of the same ids alone share.
func (r *itemRow) what() string {
	own := *r
	own.By = ""
	b, _ := json.Marshal(own) // texts alone, which never fail
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:12])
}

// ids are the row's ids by which it is found, in the order of their keys.
func (r *itemRow) ids() [4]string {
	return [4]string{r.Scope.UserID, r.Scope.SessionID, r.Scope.TaskID, r.Agent}
}

var itemSuffix = [4]string{":i:u:", ":i:s:", ":i:t:", ":i:a:"}

// itemKeys are the keys of every row: rows, all by number, the counter, by id, those of the ledger.
func (s *Store) itemKeys(project string, of key) []string {
	tag := s.projectTag(project)
	return []string{tag + ":i:row", tag + ":i:all", tag + ":i:no", tag + ":i:id", tag + ":i:of:" + enc(of.project) + "/" + enc(of.id)}
}

// idKeys are the keys of a row's ids; where it has none its place is taken by a key that the script does not touch then.
func (s *Store) idKeys(project string, r *itemRow) []string {
	tag := s.projectTag(project)
	out := make([]string, 4)
	for i, id := range r.ids() {
		out[i] = tag + itemSuffix[i] + enc(id)
	}
	return out
}

func (r *itemRow) marks() string {
	out := ""
	for _, id := range r.ids() {
		out += flag(id != "")
	}
	return out
}

var (
	// itemScript adds rows: each as place, row, id, which of its four keys count, row where it is there already. It tells of each whether it is new.
	itemScript = rueidis.NewLuaScript(`
local out = {}
for i = 1, #ARGV, 5 do
  local at = ARGV[i]
  local was = redis.call('HGET', KEYS[1], at)
  if was then
    redis.call('HSET', KEYS[1], at, string.sub(was, 1, 16) .. ARGV[i + 4])
    out[#out + 1] = 0
  else
    local no = string.format('%016.0f', redis.call('INCR', KEYS[3]))
    redis.call('HSET', KEYS[1], at, no .. ARGV[i + 1])
    redis.call('ZADD', KEYS[2], no, at)
    redis.call('ZADD', KEYS[4], 0, ARGV[i + 2] .. ' ' .. no .. at)
    redis.call('ZADD', KEYS[5], no, at)
    for j = 1, 4 do
      if string.sub(ARGV[i + 3], j, j) == '1' then redis.call('ZADD', KEYS[5 + (i - 1) / 5 * 4 + j], no, at) end
    end
    out[#out + 1] = 1
  end
end
return out`)

	// dropItemScript takes a row away that is still so: place, row with its number, id, which of its four keys count.
	dropItemScript = rueidis.NewLuaScript(`
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return 0 end
redis.call('HDEL', KEYS[1], ARGV[1])
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('ZREM', KEYS[4], ARGV[3] .. ' ' .. string.sub(ARGV[2], 1, 16) .. ARGV[1])
redis.call('ZREM', KEYS[5], ARGV[1])
for j = 1, 4 do
  if string.sub(ARGV[4], j, j) == '1' then redis.call('ZREM', KEYS[5 + j], ARGV[1]) end
end
return 1`)
)

// itemChange is what a change did to the rows, and has yet to do.
type itemChange struct {
	project string
	added   []storedRow // before the commit; to be taken away if that fails
	gone    []storedRow // to be taken away after it
}

// storedRow is a row as it has to stand to be taken away: with the name of the attempt that made it, or as it was read.
type storedRow struct {
	place    itemPlace
	by, text string
}

// putItems adds the rows of a change that is about to be written to v's agent.
func (s *Store) putItems(ctx context.Context, k key, v *view, c memory.Change) (done itemChange, err error) {
	done.project = memory.ItemProject(k.project)
	old, err := s.replaced(ctx, k, v, c)
	if err != nil {
		return done, err
	}
	by := token()
	var args []string
	var gone []itemPlace
	keys := s.itemKeys(done.project, k)
	for n, list := range [][]memory.Message{c.Append, c.Replace} {
		for i := range list {
			m := &list[i]
			r, ok := m.ItemRow(k.project, k.id)
			at := placeOf(k, v.claim, m.Seq, r)
			if n == 1 {
				before := old[m.Seq]
				was, had := before.ItemRow(k.project, k.id)
				if had == ok && was == r {
					continue
				}
				if had {
					gone = append(gone, placeOf(k, v.claim, m.Seq, was))
				}
			}
			if !ok {
				continue
			}
			row := itemRow{r.ID, r.Scope, r.AgentID, by}
			text, err := json.Marshal(row)
			if err != nil {
				return done, err
			}
			row.By = "-" + by
			again, err := json.Marshal(row)
			if err != nil {
				return done, err
			}
			done.added = append(done.added, storedRow{place: at, by: by})
			args = append(args, at.String(), string(text), enc(row.ID), row.marks(), string(again))
			keys = append(keys, s.idKeys(done.project, &row)...)
		}
	}
	for _, at := range gone {
		text, err := s.client.Do(ctx, s.client.B().Hget().Key(keys[0]).Field(at.String()).Build()).ToString()
		switch {
		case rueidis.IsRedisNil(err):
		case err != nil:
			return done, err
		default:
			done.gone = append(done.gone, storedRow{place: at, text: text})
		}
	}
	if len(args) == 0 {
		return done, nil
	}
	return done, s.eval(ctx, itemScript, keys, args...).Error()
}

// replaced gives the messages that a change replaces, by seq, as they are before it.
func (s *Store) replaced(ctx context.Context, k key, v *view, c memory.Change) (map[int64]memory.Message, error) {
	out := make(map[int64]memory.Message, len(c.Replace))
	var seqs []string
	for i := range c.Replace {
		seq := c.Replace[i].Seq
		if at, ok := v.find(seq); ok {
			out[seq] = *v.tail[at]
		} else {
			seqs = append(seqs, itoa(seq))
		}
	}
	if len(seqs) == 0 {
		return out, nil
	}
	list, err := s.bodies(ctx, k, seqs)
	for _, m := range list {
		out[m.Seq] = m
	}
	return out, err
}

// dropItems takes rows away that nobody else has taken up. Where that fails they are passed over by whoever reads them.
func (s *Store) dropItems(ctx context.Context, project string, rows []storedRow) error {
	for _, r := range rows {
		at := r.place
		keys := s.itemKeys(project, at.ledger(project))
		text, err := s.client.Do(ctx, s.client.B().Hget().Key(keys[0]).Field(at.String()).Build()).ToString()
		if rueidis.IsRedisNil(err) {
			continue
		}
		if err != nil {
			return err
		}
		row, _, err := decodeRow(text)
		if err != nil {
			return err
		}
		if r.by != "" && r.by != row.By || r.text != "" && r.text != text {
			continue
		}
		if err := s.eval(ctx, dropItemScript, append(keys, s.idKeys(project, &row)...), at.String(), text, enc(row.ID), row.marks()).Error(); err != nil {
			return err
		}
	}
	return nil
}

func decodeRow(text string) (row itemRow, no int64, err error) {
	if len(text) < noDigits {
		return row, 0, errBadRow
	}
	if no, err = strconv.ParseInt(text[:noDigits], 10, 64); err == nil {
		err = json.Unmarshal([]byte(text[noDigits:]), &row)
	}
	if err != nil {
		err = fmt.Errorf("an item's row: %w: %w", err, errBadRow)
	}
	return row, no, err
}

// forgetItems takes the rows of an agent away.
func (s *Store) forgetItems(ctx context.Context, k key, claim string) error {
	project := memory.ItemProject(k.project)
	at := s.itemKeys(project, k)[4]
	for kept := int64(0); ; {
		list, err := s.client.Do(ctx, s.client.B().Zrange().Key(at).Min(itoa(kept)).Max(itoa(kept+199)).Build()).AsStrSlice()
		if err != nil || len(list) == 0 {
			return err
		}
		var places []storedRow
		for _, text := range list {
			if p, ok := parsePlace(text); ok && p.claim == claim {
				places = append(places, storedRow{place: p})
			} else {
				kept++ // of another agent of the id
			}
		}
		if err := s.dropItems(ctx, project, places); err != nil {
			return err
		}
		if len(places) == 0 && len(list) < 200 {
			return nil
		}
	}
}

// Items gives a project's items, newest first.
func (s *Store) Items(ctx context.Context, project string, q memory.ItemQuery) (out []memory.StoredItem, next int64, err error) {
	// The most telling id leads; the others are looked at row by row.
	want := [4]string{q.UserID, q.SessionID, q.TaskID, q.AgentID}
	lead := s.projectTag(project) + ":i:all"
	for _, i := range []int{2, 1, 0, 3} {
		if want[i] != "" {
			lead = s.projectTag(project) + itemSuffix[i] + enc(want[i])
			break
		}
	}
	before, limit := "+inf", max(q.Limit, 1)
	if q.Before > 0 {
		before = "(" + itoa(q.Before)
	}
	err = s.read(ctx, "read items", func(ctx context.Context) error {
		next = 0
		c := s.client
		rows, err := c.Do(ctx, c.B().Zrevrangebyscore().Key(lead).Max(before).Min("-inf").Withscores().Limit(0, int64(limit)).Build()).AsZScores()
		if err != nil {
			return err
		}
		places := make([]string, len(rows))
		for i := range rows {
			places[i] = rows[i].Member
		}
		if len(rows) == limit {
			next = int64(rows[len(rows)-1].Score)
		}
		out, err = s.items(ctx, project, places, func(r *memory.ItemRow) bool {
			for i, id := range [4]string{r.UserID, r.SessionID, r.TaskID, r.AgentID} {
				if want[i] != "" && want[i] != id {
					return false
				}
			}
			return true
		})
		return err
	})
	return out, next, err
}

// items reads the items at places that fit, in their order, and passes over what is none any more.
func (s *Store) items(ctx context.Context, project string, texts []string, fits func(*memory.ItemRow) bool) ([]memory.StoredItem, error) {
	if len(texts) == 0 {
		return nil, nil
	}
	rows, err := s.client.Do(ctx, s.client.B().Hmget().Key(s.projectTag(project)+":i:row").Field(texts...).Build()).ToArray()
	if err != nil {
		return nil, err
	}
	type found struct {
		place itemPlace
		no    int64
	}
	var list []found
	var cmds rueidis.Commands
	for i, text := range texts {
		stored, err := rows[i].ToString()
		if rueidis.IsRedisNil(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		row, no, err := decodeRow(stored)
		if err != nil {
			return nil, err
		}
		p, ok := parsePlace(text)
		if !ok || !fits(&memory.ItemRow{Scope: row.Scope, AgentID: row.Agent}) {
			continue
		}
		list = append(list, found{p, no})
		k := p.ledger(project)
		cmds = append(cmds, s.client.B().Hget().Key(s.agentKey(k, kHead)).Field("v").Build(), s.client.B().Hget().Key(s.agentKey(k, kBody)).Field(itoa(p.seq)).Build())
	}
	if len(list) == 0 {
		return nil, nil
	}
	answers := s.client.DoMulti(ctx, cmds...)
	var out []memory.StoredItem
	for i, f := range list {
		stamp, err := answers[2*i].ToString()
		if err == nil && claimOf(stamp) != f.place.claim {
			continue
		}
		var text string
		if err == nil {
			text, err = answers[2*i+1].ToString()
		}
		if rueidis.IsRedisNil(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		m, err := decodeBody(text)
		if err != nil {
			return nil, err
		}
		k := f.place.ledger(project)
		if row, ok := m.ItemRow(k.project, k.id); ok && fits(&row) && placeOf(k, f.place.claim, m.Seq, row) == f.place { // else the row of an attempt that failed
			out = append(out, memory.StoredItem{No: f.no, Project: k.project, AgentID: k.id, Message: m, Row: row})
		}
	}
	return out, nil
}

// Item gives the first item of an id.
func (s *Store) Item(ctx context.Context, project, id string) (it memory.StoredItem, err error) {
	at, begin := s.projectTag(project)+":i:id", enc(id)+" "
	err = s.read(ctx, "read item", func(ctx context.Context) error {
		for from := "[" + begin; ; {
			list, err := s.client.Do(ctx, s.client.B().Zrangebylex().Key(at).Min(from).Max("("+begin+"\xff").Limit(0, 20).Build()).AsStrSlice()
			if err != nil {
				return err
			}
			if len(list) == 0 {
				return memory.ErrNoItem(id)
			}
			from = "(" + list[len(list)-1]
			places := make([]string, len(list))
			for i, member := range list {
				places[i] = member[min(len(begin)+noDigits, len(member)):]
			}
			found, err := s.items(ctx, project, places, func(*memory.ItemRow) bool { return true })
			if err != nil {
				return err
			}
			i := slices.IndexFunc(found, func(f memory.StoredItem) bool { return f.Row.ID == id })
			if i >= 0 {
				it = found[i]
				return nil
			}
		}
	})
	if err != nil && !fault.Is(err, fault.NotFound) {
		return memory.StoredItem{}, err
	}
	return it, err
}
