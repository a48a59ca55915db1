package redis

import (
	"context"
	"maps"
	"slices"

	"github.com/redis/rueidis"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
)

// listPage is how many agents are looked at in one go, livePage how many are read.
const (
	listPage = 1000
	livePage = 200
)

// byID gives ids of a zset in one of both directions from a place on.
func (s *Store) byID(ctx context.Context, at, after string) ([]string, error) {
	from := "-"
	if after != "" {
		from = "(" + after
	}
	return s.client.Do(ctx, s.client.B().Zrangebylex().Key(at).Min(from).Max("+").Limit(0, listPage).Build()).AsStrSlice()
}

// Agents lists a project's agents, newest id first.
func (s *Store) Agents(ctx context.Context, q memory.AgentQuery) (page memory.AgentPage, err error) {
	err = s.read(ctx, "list agents", func(ctx context.Context) error {
		for range foundAgain {
			var wrong []string
			if page, wrong, err = s.list(ctx, q); err != nil || len(wrong) == 0 {
				return err
			}
			if fixed, err := s.settleAll(ctx, q.Project, wrong); err != nil || !fixed {
				return err
			}
		}
		return nil
	})
	return page, err
}

// list makes a page, and tells which agents on it are not there, or not as the index says.
func (s *Store) list(ctx context.Context, q memory.AgentQuery) (page memory.AgentPage, wrong []string, err error) {
	ids, total, err := s.matching(ctx, q)
	if err != nil {
		return page, nil, err
	}
	page.Count(total)
	limit := max(q.Limit, 1)
	if len(ids) > limit {
		page.Next = ids[limit]
		ids = ids[:limit]
	}
	agents, err := s.agents(ctx, q.Project, ids)
	if err != nil {
		return page, nil, err
	}
	for _, id := range ids {
		a, ok := agents[id]
		if !ok || len(q.Statuses) > 0 && !slices.Contains(q.Statuses, a.Status) {
			wrong = append(wrong, id)
			continue
		}
		page.Agents = append(page.Agents, a)
	}
	return page, wrong, nil
}

// matching gives the newest limit + 1 ids that match from the cursor on, and how many match in all. Without any filter but statuses it costs the same however many there are; with others the
// entries of all candidates are looked at, some at a time.
func (s *Store) matching(ctx context.Context, q memory.AgentQuery) (ids []string, total int, err error) {
	sets := []string{s.projectKey(q.Project, kAll)}
	if len(q.Statuses) > 0 {
		sets = nil
		for _, st := range q.Statuses {
			if at := s.projectKey(q.Project, kStatus+int(st)); int(st) < memory.Statuses && st >= 0 && !slices.Contains(sets, at) {
				sets = append(sets, at)
			}
		}
	}
	limit := max(q.Limit, 1) + 1
	plain := q.Channel == "" && q.Name == "" && q.FromMS == 0 && q.ToMS == 0
	for _, at := range sets {
		if plain {
			n, err := s.client.Do(ctx, s.client.B().Zcard().Key(at).Build()).AsInt64()
			if err != nil {
				return nil, 0, err
			}
			total += int(n)
			from := "+"
			if q.Cursor != "" {
				from = "[" + q.Cursor
			}
			list, err := s.client.Do(ctx, s.client.B().Zrevrangebylex().Key(at).Max(from).Min("-").Limit(0, int64(limit)).Build()).AsStrSlice()
			if err != nil {
				return nil, 0, err
			}
			ids = append(ids, list...)
			continue
		}
		for after := ""; ; {
			part, err := s.byID(ctx, at, after)
			if err != nil {
				return nil, 0, err
			}
			if len(part) == 0 {
				break
			}
			after = part[len(part)-1]
			fits, err := s.filter(ctx, q, part)
			if err != nil {
				return nil, 0, err
			}
			total += len(fits)
			for _, id := range fits {
				if q.Cursor == "" || id <= q.Cursor {
					ids = append(ids, id)
				}
			}
			if len(ids) > 4*limit+listPage { // the newest are the last
				ids = slices.Clone(ids[len(ids)-limit:])
			}
		}
	}
	slices.Sort(ids)
	slices.Reverse(ids)
	return ids[:min(len(ids), limit)], total, nil
}

// filter gives those of the agents that match.
func (s *Store) filter(ctx context.Context, q memory.AgentQuery, ids []string) (out []string, err error) {
	rows, err := s.client.Do(ctx, s.client.B().Hmget().Key(s.projectKey(q.Project, kInfo)).Field(ids...).Build()).ToArray()
	if err != nil {
		return nil, err
	}
	for n, id := range ids {
		text, err := rows[n].ToString()
		if rueidis.IsRedisNil(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		i, err := decodeInfo(text)
		if err != nil {
			return nil, err
		}
		if (q.Channel == "" || i.Channel == q.Channel) && (q.Name == "" || i.Name == q.Name) && (q.FromMS == 0 || i.StartMS >= q.FromMS) && (q.ToMS == 0 || i.StartMS <= q.ToMS) {
			out = append(out, id)
		}
	}
	return out, nil
}

// agents reads agents of a project; those that are gone are not in the result.
func (s *Store) agents(ctx context.Context, project string, ids []string) (map[string]memory.Agent, error) {
	out := make(map[string]memory.Agent, len(ids))
	for part := range slices.Chunk(ids, livePage) {
		cmds := make(rueidis.Commands, len(part))
		for i, id := range part {
			cmds[i] = s.client.B().Hget().Key(s.agentKey(key{project, id}, kHead)).Field("a").Build()
		}
		for i, answer := range s.client.DoMulti(ctx, cmds...) {
			text, err := answer.ToString()
			if rueidis.IsRedisNil(err) {
				continue
			}
			if err != nil {
				return nil, err
			}
			if out[part[i]], err = s.decodeAgent(text); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// liveStatuses are those of agents that have not ended.
func liveStatuses() []memory.Status {
	return []memory.Status{memory.Idle, memory.Starting, memory.Running, memory.Stopping, memory.Recovering}
}

// liveIDs gives the live agents of a project.
func (s *Store) liveIDs(ctx context.Context, project string) ([]string, error) {
	ids := map[string]bool{}
	for _, st := range liveStatuses() {
		for after := ""; ; {
			part, err := s.byID(ctx, s.projectKey(project, kStatus+int(st)), after)
			if err != nil {
				return nil, err
			}
			if len(part) == 0 {
				break
			}
			after = part[len(part)-1]
			for _, id := range part {
				ids[id] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(ids)), nil
}

// Live calls each for every live agent.
func (s *Store) Live(ctx context.Context, each func(memory.Head) error) error {
	var projects []string
	err := s.read(ctx, "read projects", func(ctx context.Context) (err error) {
		projects, err = s.projectList(ctx)
		return err
	})
	for _, project := range projects {
		if err != nil {
			break
		}
		var ids []string
		err = s.read(ctx, "read live agents", func(ctx context.Context) (err error) {
			ids, err = s.liveIDs(ctx, project)
			return err
		})
		for part := range slices.Chunk(ids, livePage) {
			if err != nil {
				break
			}
			var heads []memory.Head
			err = s.read(ctx, "read live agents", func(ctx context.Context) (err error) {
				heads, err = s.heads(ctx, project, part)
				return err
			})
			for i := range heads {
				if err == nil && !heads[i].Agent.Status.Ended() {
					err = each(heads[i])
				}
			}
		}
	}
	return err
}

// heads reads agents' heads in one round trip to each node.
func (s *Store) heads(ctx context.Context, project string, ids []string) (out []memory.Head, err error) {
	if len(ids) == 0 {
		return nil, nil
	}
	keys, args := make([][]string, len(ids)), make([][]string, len(ids))
	for i, id := range ids {
		k := key{project, id}
		keys[i], args[i] = []string{s.agentKey(k, kHead), s.agentKey(k, kBody)}, []string{"1", "0", "1", itoa(readLooks)}
	}
	for i, answer := range s.evalMany(ctx, readScript, keys, args) {
		got, err := s.decodeRead(key{project, ids[i]}, answer)
		switch {
		case fault.Is(err, fault.NotFound):
			continue
		case unreadable(err): // no reason for the others not to go on
			s.notice("agent " + ids[i] + " of project " + project + " cannot be read, and nothing is done for it: " + err.Error())
			continue
		case err != nil:
			return nil, err
		}
		out = append(out, got.view.head)
	}
	return out, nil
}

// Count gives how many agents have each status.
func (s *Store) Count(ctx context.Context) (out [memory.Statuses]int, err error) {
	err = s.read(ctx, "count agents", func(ctx context.Context) error {
		out = [memory.Statuses]int{}
		projects, err := s.projectList(ctx)
		if err != nil {
			return err
		}
		for _, project := range projects {
			cmds := make(rueidis.Commands, memory.Statuses)
			for st := range cmds {
				cmds[st] = s.client.B().Zcard().Key(s.projectKey(project, kStatus+st)).Build()
			}
			for st, answer := range s.client.DoMulti(ctx, cmds...) {
				n, err := answer.AsInt64()
				if err != nil {
					return err
				}
				out[st] += int(n)
			}
		}
		return nil
	})
	return out, err
}
