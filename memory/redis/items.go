package redis

import (
	"context"
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

// itemPlace is where an item stands: in a ledger of the items' project, or of its own one.
type itemPlace struct {
	own   bool
	claim string
	seq   int64
	agent string
}

func (p itemPlace) String() string {
	return flag(p.own) + p.claim + " " + itoa(p.seq) + " " + p.agent
}

func parsePlace(text string) (p itemPlace, ok bool) {
	head, rest, ok := strings.Cut(text, " ")
	seq, agent, ok2 := strings.Cut(rest, " ")
	n, err := strconv.ParseInt(seq, 10, 64)
	if !ok || !ok2 || err != nil || head == "" {
		return p, false
	}
	return itemPlace{head[0] == '1', head[1:], n, agent}, true
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
	// itemScript adds rows: each as place, row, id, which of its four keys count. It tells of each whether it is new.
	itemScript = rueidis.NewLuaScript(`
local out = {}
for i = 1, #ARGV, 4 do
  local at = ARGV[i]
  if redis.call('HEXISTS', KEYS[1], at) == 1 then
    out[#out + 1] = 0
  else
    local no = string.format('%016.0f', redis.call('INCR', KEYS[3]))
    redis.call('HSET', KEYS[1], at, no .. ARGV[i + 1])
    redis.call('ZADD', KEYS[2], no, at)
    redis.call('ZADD', KEYS[4], 0, ARGV[i + 2] .. ' ' .. no .. at)
    redis.call('ZADD', KEYS[5], no, at)
    for j = 1, 4 do
      if string.sub(ARGV[i + 3], j, j) == '1' then redis.call('ZADD', KEYS[5 + i - 1 + j], no, at) end
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
	added   []itemPlace // before the commit; to be taken away if that fails
	gone    []itemPlace // to be taken away after it
}

// putItems adds the rows of a change that is about to be written to v's agent.
func (s *Store) putItems(ctx context.Context, k key, v *view, c memory.Change) (done itemChange, err error) {
	done.project = memory.ItemProject(k.project)
	var places []itemPlace
	var args []string
	keys := s.itemKeys(done.project, k)
	for n, list := range [][]memory.Message{c.Append, c.Replace} {
		for i := range list {
			m := &list[i]
			at := itemPlace{done.project != k.project, v.claim, m.Seq, k.id}
			r, ok := m.ItemRow(k.project, k.id)
			if n == 1 { // most that is replaced is no item, or stays one
				was, known := false, false
				if at, found := v.find(m.Seq); found {
					_, was = v.tail[at].ItemRow(k.project, k.id)
					known = true
				}
				if known && was == ok {
					continue
				}
			}
			if !ok {
				if n == 1 {
					done.gone = append(done.gone, at)
				}
				continue
			}
			row := itemRow{r.ID, r.Scope, r.AgentID}
			text, err := json.Marshal(row)
			if err != nil {
				return done, err
			}
			places = append(places, at)
			args = append(args, at.String(), string(text), enc(row.ID), row.marks())
			keys = append(keys, s.idKeys(done.project, &row)...)
		}
	}
	if len(places) == 0 {
		return done, nil
	}
	fresh, err := s.eval(ctx, itemScript, keys, args...).AsIntSlice()
	if err != nil {
		return done, err
	}
	for i, n := range fresh {
		if n == 1 {
			done.added = append(done.added, places[i])
		}
	}
	return done, nil
}

// dropItems takes rows away. Where that fails they are passed over by whoever reads them.
func (s *Store) dropItems(ctx context.Context, project string, places []itemPlace) error {
	for _, at := range places {
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
		var places []itemPlace
		for _, text := range list {
			if p, ok := parsePlace(text); ok && p.claim == claim {
				places = append(places, p)
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
		if row, ok := m.ItemRow(k.project, k.id); ok && fits(&row) {
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
