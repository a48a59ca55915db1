package redis

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/rueidis"

	"github.com/heardlog/heardlog/memory"
)

// readOne is an agent as it was read in one moment. Its view is whole only where all messages were asked for, not those of history alone.
type readOne struct {
	view *view
	list []memory.Message // what was asked for, oldest first
	at   int64            // where a script has stopped that had looked at enough; 0 = there is no more
}

// A script looks at so much in one go, and what a reader wants beyond that is read by further ones. Where the agent changes meanwhile it is read anew, each time in longer goes, and at last in one.
const (
	readBytes = 4_000_000
	readLooks = 2000
	readTries = 4
)

// stamp gives the stamp that stands now; "" where there is no such agent.
func (s *Store) stamp(ctx context.Context, k key) (string, error) {
	now, err := s.client.Do(ctx, s.client.B().Hget().Key(s.agentKey(k, kHead)).Field("v").Build()).ToString()
	if rueidis.IsRedisNil(err) {
		return "", nil
	}
	return now, err
}

// readAgent reads an agent with its newest n messages (0: as many as a view keeps). noAgent where there is none.
func (s *Store) readAgent(ctx context.Context, k key, n int, historyOnly bool) (got readOne, err error) {
	keys := []string{s.agentKey(k, kHead), s.agentKey(k, kBody)}
	if n == 0 {
		return s.decodeRead(k, s.eval(ctx, readScript.Lua, keys, "0", "0", itoa(maxTailBytes), itoa(readLooks)))
	}
	for try := range readTries {
		bytes, looks := int64(readBytes)<<(2*try), int64(readLooks)<<(2*try)
		if try == readTries-1 {
			bytes, looks = 1<<50, 1<<50
		}
		bounds := []string{flag(historyOnly), itoa(bytes), itoa(looks)}
		got, err = s.decodeRead(k, s.eval(ctx, readScript.Lua, keys, slices.Concat([]string{strconv.Itoa(n)}, bounds)...))
		if err != nil {
			return got, err
		}
		same := true
		for same && got.at > 0 && len(got.list) < n {
			row, err := s.eval(ctx, moreScript, keys, slices.Concat([]string{itoa(got.at), strconv.Itoa(n - len(got.list))}, bounds)...).ToArray()
			if err != nil {
				return got, err
			}
			if len(row) == 0 {
				return got, noAgent(k.id)
			}
			if same, err = s.decodeMore(&got, row); err != nil {
				return got, err
			}
		}
		if same {
			break
		}
	}
	return got, nil
}

// decodeMore adds what moreScript gave to what was read, and tells whether it is of the same moment.
func (s *Store) decodeMore(got *readOne, row []rueidis.RedisMessage) (same bool, err error) {
	if len(row) != 3 {
		return false, errBadRow
	}
	stamp, err := row[0].ToString()
	if err != nil || stamp != got.view.stamp() {
		return false, err
	}
	at, err := row[1].ToString()
	if err != nil {
		return false, err
	}
	if got.at, err = strconv.ParseInt(at, 10, 64); err != nil {
		return false, fmt.Errorf("a place in a ledger: %w: %w", err, errBadRow)
	}
	older, err := decodeBodies(row[2])
	got.list = append(older, got.list...)
	return true, err
}

// decodeBodies reads messages that stand newest first, and gives them oldest first.
func decodeBodies(row rueidis.RedisMessage) (list []memory.Message, err error) {
	rows, err := row.AsStrSlice()
	if err != nil {
		return nil, err
	}
	for _, text := range slices.Backward(rows) {
		m, err := decodeBody(text)
		if err != nil {
			return nil, err
		}
		list = append(list, m)
	}
	return list, nil
}

// decodeRead reads the answer of readScript.
func (s *Store) decodeRead(k key, answer rueidis.RedisResult) (got readOne, err error) {
	row, err := answer.ToArray()
	if err != nil {
		return got, err
	}
	if len(row) == 0 {
		return got, noAgent(k.id)
	}
	if len(row) == 1 {
		return got, fmt.Errorf("agent %s: the server has dropped its messages: %w", k.id, errBadRow)
	}
	if len(row) != 8 {
		return got, errBadRow
	}
	var text [7]string
	for i := range text {
		if text[i], err = row[i].ToString(); err != nil {
			return got, err
		}
	}
	claim, rest, _ := strings.Cut(text[0], ".")
	ver, nonce, _ := strings.Cut(rest, ".")
	var version int64
	var h memory.Head
	for _, n := range []struct {
		text string
		into *int64
	}{{ver, &version}, {text[2], &h.Rev}, {text[3], &h.NextSeq}, {text[4], &h.LastTurn}, {text[5], &got.at}} {
		if *n.into, err = strconv.ParseInt(n.text, 10, 64); err != nil {
			return got, fmt.Errorf("an agent's numbers: %w: %w", err, errBadRow)
		}
	}
	if h.Agent, err = s.decodeAgent(text[1]); err != nil {
		return got, err
	}
	if text[6] != "" {
		if h.Last, err = decodeBody(text[6]); err != nil {
			return got, err
		}
	}
	if got.list, err = decodeBodies(row[7]); err != nil {
		return got, err
	}
	got.view = newView(claim, version, nonce, h, slices.Clone(got.list), got.at == 0)
	return got, nil
}

// load reads an agent and keeps it in memory.
func (s *Store) load(ctx context.Context, k key) (*view, error) {
	got, err := s.readAgent(ctx, k, 0, false)
	if err != nil {
		return nil, err
	}
	s.cache.put(k, got.view)
	return got.view, nil
}

// current gives an agent as it is now: from memory where its stamp still stands, and read anew otherwise.
func (s *Store) current(ctx context.Context, k key) (*view, error) {
	if v := s.cache.get(k); v != nil {
		now, err := s.stamp(ctx, k)
		if err != nil {
			return nil, err
		}
		if now == v.stamp() {
			return v, nil
		}
		if now == "" {
			s.cache.Drop(k)
			return nil, noAgent(k.id)
		}
	}
	return s.load(ctx, k)
}

// bodies reads messages by seq, in order; those that are not there are left out.
func (s *Store) bodies(ctx context.Context, k key, seqs []string) ([]memory.Message, error) {
	var out []memory.Message
	for part := range slices.Chunk(seqs, 1000) {
		rows, err := s.client.Do(ctx, s.client.B().Hmget().Key(s.agentKey(k, kBody)).Field(part...).Build()).ToArray()
		if err != nil {
			return nil, err
		}
		for i := range rows {
			text, err := rows[i].ToString()
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
			out = append(out, m)
		}
	}
	slices.SortFunc(out, func(a, b memory.Message) int { return cmp.Compare(a.Seq, b.Seq) })
	return out, nil
}

// Head gives the agent's head. Where nothing in memory holds, no more than it is read.
func (s *Store) Head(ctx context.Context, project, id string) (h memory.Head, err error) {
	k := key{project, id}
	err = s.read(ctx, "read agent", func(ctx context.Context) error {
		v := s.cache.get(k)
		if v != nil {
			now, err := s.stamp(ctx, k)
			if err != nil {
				return err
			}
			if now == "" {
				s.cache.Drop(k)
				return noAgent(k.id)
			}
			if now != v.stamp() {
				v = nil
			}
		}
		if v == nil {
			got, err := s.readAgent(ctx, k, 1, false)
			if err != nil {
				return err
			}
			v = got.view
		}
		h = v.head
		return nil
	})
	return h, err
}

// Recent gives the head and the newest n messages.
func (s *Store) Recent(ctx context.Context, project, id string, n int, historyOnly bool) (h memory.Head, list []memory.Message, err error) {
	k := key{project, id}
	err = s.read(ctx, "read agent", func(ctx context.Context) error {
		v, err := s.current(ctx, k)
		if err != nil {
			return err
		}
		ok := false
		if list, ok = v.newest(n, historyOnly); ok {
			h = v.head
			return nil
		}
		got, err := s.readAgent(ctx, k, n, historyOnly) // head and messages of one moment
		if err != nil {
			return err
		}
		h, list = got.view.head, got.list
		return nil
	})
	if err != nil {
		return memory.Head{}, nil, err
	}
	return h, list, nil
}

// Messages pages through the ledger.
func (s *Store) Messages(ctx context.Context, project, id string, q memory.MessageQuery) (list []memory.Message, err error) {
	k := key{project, id}
	err = s.read(ctx, "read messages", func(ctx context.Context) error {
		v, err := s.current(ctx, k)
		if err != nil {
			return err
		}
		ok := false
		if list, ok = v.page(q); ok {
			return nil
		}
		list, err = s.page(ctx, k, q)
		return err
	})
	return list, err
}

// page reads a page from the server, in as many goes as it takes.
func (s *Store) page(ctx context.Context, k key, q memory.MessageQuery) (list []memory.Message, err error) {
	keys := []string{s.agentKey(k, kHead), s.agentKey(k, kBody), s.agentKey(k, kRev)}
	limit := max(q.Limit, 1)
	for after := max(q.AfterSeq, 0); len(list) < limit; {
		row, err := s.eval(ctx, pageScript, keys, itoa(after), itoa(max(q.AfterRev, 0)), strconv.Itoa(limit-len(list)), flag(q.HistoryOnly)).ToArray()
		if err != nil {
			return nil, err
		}
		if len(row) == 0 {
			return nil, noAgent(k.id)
		}
		next, err := row[0].ToString()
		if err != nil {
			return nil, err
		}
		rows, err := row[1].AsStrSlice()
		if err != nil {
			return nil, err
		}
		for _, text := range rows {
			m, err := decodeBody(text)
			if err != nil {
				return nil, err
			}
			list = append(list, m)
		}
		if after, err = strconv.ParseInt(next, 10, 64); err != nil {
			return nil, fmt.Errorf("a place in a ledger: %w: %w", err, errBadRow)
		}
		if after == 0 {
			break
		}
	}
	return list, nil
}
