package redis

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/redis/rueidis"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/export"
	"github.com/heardlog/heardlog/memory/seal"
)

// Reader reads a prefix beside the servers that have it, and changes nothing.
type Reader struct{ s *Store }

var (
	_ export.Source = (*Reader)(nil)
	_ export.Prober = (*Reader)(nil)
)

// OpenReader connects; a prefix that no server has used is fault.NotFound. A key for one without secrets under a key is not used.
func OpenReader(ctx context.Context, o Options) (*Reader, error) {
	o = o.withDefaults()
	p, err := parse(o.URL)
	if err != nil {
		return nil, err
	}
	p.client.ConnWriteTimeout = o.Timeout
	s := &Store{prefix: p.prefix, cache: newCache(1), timeout: o.Timeout, observe: o.Observe, notice: o.Notice, stop: func() {}}
	if s.client, err = rueidis.NewClient(p.client); err != nil {
		return nil, classify(err, "connect")
	}
	err = s.read(ctx, "open the store", func(ctx context.Context) error {
		n, err := s.client.Do(ctx, s.client.B().Exists().Key(s.rootKey("mark")).Build()).AsInt64()
		if err != nil {
			return err
		}
		if n == 0 {
			return fault.New(fault.NotFound, "there is no memory under the prefix %q of this server: look at prefix and number of the database in the URL", s.prefix)
		}
		check, err := s.client.Do(ctx, s.client.B().Get().Key(s.rootKey("seal")).Build()).AsBytes()
		if rueidis.IsRedisNil(err) {
			return nil
		}
		if err == nil {
			if s.sealer, err = seal.Check(o.SealKey, check); err != nil {
				err = fault.Wrap(fault.Invalid, err, fmt.Sprint("the secrets in this store cannot be read: ", err))
			}
		}
		return err
	})
	if err != nil {
		s.client.Close()
		return nil, err
	}
	return &Reader{s}, nil
}

// Close ends the connections.
func (r *Reader) Close() error {
	r.s.client.Close()
	return nil
}

// exporter is one export under way.
type exporter struct {
	s     *Store
	scope export.Scope
	each  func(export.Record) error

	projects []string
	heads    map[string][]string // ids by project; one may be there twice
	agents   []exported
	items    map[string]map[string]*export.Item // of what was exported, by the items' project and place
	order    []string                           // places, as they were met
}

// exported is an agent that was given.
type exported struct {
	k     key
	claim string
}

// Export gives what the prefix holds. Redis has no moment that all of it could be of: each agent is of one moment with its messages, and what comes behind the agents is of what was given of them. Agents are in
// the order of their projects' names, and within them as they were made. Of items it keeps in memory where they are.
func (r *Reader) Export(ctx context.Context, sc export.Scope, each func(export.Record) error) error {
	x := &exporter{s: r.s, scope: sc, each: each, items: map[string]map[string]*export.Item{}}
	if err := each(export.Record{Start: &export.Start{}}); err != nil {
		return err
	}
	for _, part := range []func(context.Context) error{x.look, x.allAgents, x.allItems, x.allWorking, x.conversations} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	return nil
}

// look finds the projects of the scope, by name, and the agents that are there, whether anything finds them or not.
func (x *exporter) look(ctx context.Context) error {
	x.heads = map[string][]string{}
	if x.scope.Agent != "" {
		x.projects = []string{x.scope.Project}
		return nil
	}
	only := x.scope.Projects()
	within := func(project string) bool { return x.scope.Project == "" || slices.Contains(only[:], project) }
	found := map[string]bool{}
	err := x.s.scan(ctx, "*", "}"+agentSuffix[kHead], func(tag string) error {
		if project, id, ok := strings.Cut(tag, "/"); ok && within(dec(project)) {
			found[dec(project)] = true
			x.heads[dec(project)] = append(x.heads[dec(project)], dec(id))
		}
		return nil
	})
	if err != nil {
		return err
	}
	// One that has saved conversations only has no agents.
	err = x.s.scan(ctx, "*", "/}:convs", func(tag string) error {
		if within(dec(tag)) {
			found[dec(tag)] = true
		}
		return nil
	})
	x.projects = slices.Sorted(maps.Keys(found))
	return err
}

// scan calls each for every key of the prefix that has such a tag and ends so, on every node, with what stands between its opening brace and the end; some may come twice.
func (s *Store) scan(ctx context.Context, tag, end string, each func(tag string) error) error {
	begin := s.prefix + ":{"
	for _, node := range s.client.Nodes() {
		for at := uint64(0); ; {
			var page rueidis.ScanEntry
			err := s.read(ctx, "look through the keys", func(ctx context.Context) (err error) {
				page, err = node.Do(ctx, node.B().Scan().Cursor(at).Match(begin+tag+end).Count(1000).Build()).AsScanEntry()
				return err
			})
			if err != nil {
				return err
			}
			for _, name := range page.Elements {
				if err := each(strings.TrimSuffix(strings.TrimPrefix(name, begin), end)); err != nil {
					return err
				}
			}
			if at = page.Cursor; at == 0 {
				break
			}
		}
	}
	return nil
}

// made puts a project's agents into the order in which they were made; those whose entries are lost come last, by id.
func (s *Store) made(ctx context.Context, project string, ids []string) ([]string, error) {
	no := map[string]string{}
	for part := range slices.Chunk(ids, listPage) {
		err := s.read(ctx, "list agents", func(ctx context.Context) error {
			rows, err := s.client.Do(ctx, s.client.B().Hmget().Key(s.projectKey(project, kInfo)).Field(part...).Build()).ToArray()
			if err != nil {
				return err
			}
			for i := range rows {
				text, err := rows[i].ToString()
				if err != nil && !rueidis.IsRedisNil(err) {
					return err
				}
				if len(text) < noDigits {
					text = strings.Repeat("9", noDigits)
				}
				no[part[i]] = text[:noDigits]
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return slices.SortedFunc(maps.Keys(no), func(a, b string) int { return cmp.Or(strings.Compare(no[a], no[b]), strings.Compare(a, b)) }), nil
}

func (x *exporter) allAgents(ctx context.Context) error {
	if x.scope.Agent != "" {
		return x.agent(ctx, key{x.scope.Project, x.scope.Agent})
	}
	for _, project := range x.projects {
		ids, err := x.s.made(ctx, project, x.heads[project])
		if err != nil {
			return err
		}
		for _, id := range ids {
			// One that is gone has expired or was erased since.
			if err := x.agent(ctx, key{project, id}); err != nil && !fault.Is(err, fault.NotFound) {
				return err
			}
		}
	}
	return nil
}

// agent gives an agent and its messages.
func (x *exporter) agent(ctx context.Context, k key) error {
	got, err := x.s.whole(ctx, k)
	at := fmt.Sprintf("agent %s of project %s", k.id, k.project)
	if fault.Is(err, fault.NotFound) || fault.Is(err, fault.Unavailable) || fault.Is(err, fault.Canceled) {
		return err
	}
	if err != nil {
		return x.scope.Fail(at, err)
	}
	h, claim := &got.view.head, got.view.claim
	x.agents = append(x.agents, exported{k, claim})
	if err := x.each(export.Record{Agent: &export.Agent{Agent: h.Agent, HeadRev: h.Rev, NextSeq: h.NextSeq, LastTurn: h.LastTurn}}); err != nil {
		return err
	}
	for i := range got.list {
		m := &got.list[i]
		if row, ok := m.ItemRow(k.project, k.id); ok {
			x.item(placeOf(k, claim, m.Seq, row).String(), &export.Item{Project: k.project, AgentID: k.id, Seq: m.Seq, Row: row})
		}
		if err := x.each(export.Record{Message: &export.Message{Project: k.project, AgentID: k.id, Message: *m}}); err != nil {
			return err
		}
	}
	return nil
}

// item notes an item of what was exported.
func (x *exporter) item(place string, it *export.Item) {
	of := x.items[it.Row.Project]
	if of == nil {
		of = map[string]*export.Item{}
		x.items[it.Row.Project] = of
	}
	of[place] = it
	x.order = append(x.order, place)
}

// oneGo is how many messages are read by one script, which holds others up while it runs; a longer ledger is read in pages, and once more where it changes meanwhile, and after wholeTries of these in one go after all.
const (
	oneGo      = 5000
	wholeTries = 3
)

// whole reads an agent and all its messages as of one moment.
func (s *Store) whole(ctx context.Context, k key) (got readOne, err error) {
	read := func(n int) error {
		return s.read(ctx, "read agent", func(ctx context.Context) (err error) {
			got, err = s.readAgent(ctx, k, n, false)
			return err
		})
	}
	for range wholeTries {
		if err := read(oneGo); err != nil || len(got.list) < oneGo {
			return got, err
		}
		got.list = nil
		for after, page := int64(0), []memory.Message(nil); ; after = page[len(page)-1].Seq {
			err := s.read(ctx, "read messages", func(ctx context.Context) (err error) {
				page, err = s.page(ctx, k, memory.MessageQuery{AfterSeq: after, Limit: oneGo})
				return err
			})
			if err != nil {
				return got, err
			}
			if len(page) == 0 {
				break
			}
			got.list = append(got.list, page...)
		}
		var now string
		err := s.read(ctx, "read agent", func(ctx context.Context) (err error) {
			now, err = s.stamp(ctx, k)
			return err
		})
		if err != nil || now == got.view.stamp() {
			return got, err
		}
	}
	err = read(int(got.view.head.NextSeq) + oneGo)
	return got, err
}

// allItems gives the items of what was exported, as they came.
func (x *exporter) allItems(ctx context.Context) error {
	for _, project := range slices.Sorted(maps.Keys(x.items)) {
		of := x.items[project]
		all := x.s.projectTag(project) + ":i:all"
		if x.scope.Agent != "" {
			all = x.s.itemKeys(project, key{x.scope.Project, x.scope.Agent})[4]
		}
		for from := "-inf"; len(of) > 0; {
			var page []rueidis.ZScore
			err := x.s.read(ctx, "list items", func(ctx context.Context) (err error) {
				page, err = x.s.client.Do(ctx, x.s.client.B().Zrangebyscore().Key(all).Min(from).Max("+inf").Withscores().Limit(0, listPage).Build()).AsZScores()
				return err
			})
			if err != nil {
				return err
			}
			for _, at := range page {
				if err := x.give(of, at.Member); err != nil {
					return err
				}
			}
			if len(page) < listPage {
				break
			}
			from = "(" + itoa(int64(page[len(page)-1].Score))
		}
	}
	for _, place := range x.order { // what stopped being one since
		for _, of := range x.items {
			if err := x.give(of, place); err != nil {
				return err
			}
		}
	}
	return nil
}

// give gives an item once.
func (x *exporter) give(of map[string]*export.Item, place string) error {
	it := of[place]
	if it == nil {
		return nil
	}
	delete(of, place)
	return x.each(export.Record{Item: it})
}

// workScript reads all of an agent's working memory.
var workScript = rueidis.NewLuaScript(`return {redis.call('HGET', KEYS[1], 'v') or '', redis.call('HGETALL', KEYS[2]), redis.call('HGETALL', KEYS[3])}`)

func (x *exporter) allWorking(ctx context.Context) error {
	for _, a := range x.agents {
		list, err := x.s.allWorking(ctx, a)
		at := fmt.Sprintf("the working memory of agent %s of project %s", a.k.id, a.k.project)
		if fault.Is(err, fault.Unavailable) || fault.Is(err, fault.Canceled) {
			return err
		}
		if err := x.scope.Fail(at, err); err != nil {
			return err
		}
		for i := range list {
			if err := x.each(export.Record{Working: &list[i]}); err != nil {
				return err
			}
		}
	}
	return nil
}

// allWorking gives an agent's working memory by key; nothing where the agent is gone.
func (s *Store) allWorking(ctx context.Context, a exported) (out []export.Working, err error) {
	err = s.read(ctx, "read working memory", func(ctx context.Context) error {
		out = nil
		row, err := s.eval(ctx, workScript, []string{s.agentKey(a.k, kHead), s.agentKey(a.k, kWork), s.agentKey(a.k, kWorkMeta)}).ToArray()
		if err != nil {
			return err
		}
		if len(row) != 3 {
			return errBadRow
		}
		stamp, err := row[0].ToString()
		if err != nil || claimOf(stamp) != a.claim {
			return err
		}
		values, err := row[1].AsStrMap()
		if err != nil {
			return err
		}
		metas, err := row[2].AsStrMap()
		if err != nil {
			return err
		}
		for _, name := range slices.Sorted(maps.Keys(metas)) {
			meta, err := parseMeta(name, metas[name])
			if err != nil {
				return err
			}
			w := export.Working{Project: a.k.project, AgentID: a.k.id, Key: name, UpdatedMS: meta.UpdatedMS, ExpiresMS: meta.ExpiresMS}
			if w.Value, err = s.sealer.Open([]byte(values[name]), workingOwner(a.k.project, a.k.id, name)); err != nil {
				return err
			}
			out = append(out, w)
		}
		return nil
	})
	return out, err
}

func (x *exporter) conversations(ctx context.Context) error {
	if x.scope.Agent != "" {
		return nil
	}
	for _, project := range x.projects {
		keys := x.s.conversationKeys(project)
		for after := ""; ; {
			var ids []string
			err := x.s.read(ctx, "list conversations", func(ctx context.Context) (err error) {
				ids, err = x.s.byID(ctx, keys[1], after)
				return err
			})
			if err != nil {
				return err
			}
			if len(ids) == 0 {
				break
			}
			after = ids[len(ids)-1]
			for _, id := range ids {
				body, err := x.s.LoadConversation(ctx, project, id)
				switch {
				case fault.Is(err, fault.NotFound): // deleted since
					continue
				case fault.Is(err, fault.Unavailable) || fault.Is(err, fault.Canceled):
					return err
				case err != nil:
					err = x.scope.Fail(fmt.Sprintf("conversation %s of project %s", id, project), err)
				default:
					err = x.each(export.Record{Conversation: &export.Conversation{Project: project, ID: id, Body: body}})
				}
				if err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// Probe looks for agents that nothing finds: their entries were lost, as happens where a server drops keys when its memory is full.
func (r *Reader) Probe(ctx context.Context, each func(export.Finding) error) error {
	told := map[string]bool{}
	return r.s.scan(ctx, "*", "}"+agentSuffix[kHead], func(tag string) error {
		project, id, ok := strings.Cut(tag, "/")
		if !ok || told[tag] {
			return nil
		}
		told[tag] = true
		k := key{dec(project), dec(id)}
		var text, stamp string
		err := r.s.read(ctx, "look for an entry", func(ctx context.Context) (err error) {
			if text, err = r.s.entry(ctx, k); err == nil {
				stamp, err = r.s.stamp(ctx, k)
			}
			return err
		})
		if err != nil || stamp == "" {
			return err
		}
		if i, err := decodeInfo(text); err == nil && i.Claim == claimOf(stamp) {
			return nil
		}
		return each(export.Finding{Project: k.project, Agent: k.id, What: "nothing finds it but its id: its entry is lost"})
	})
}
