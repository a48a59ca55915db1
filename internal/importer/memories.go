package importer

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/heardlog/heardlog/internal/peek"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/platform"
)

// Memories is the subcommand import-memory, in the form of package cli.
type Memories struct {
	ServerFlags
	File     string   `placeholder:"PATH" help:"File of memories, or a folder of such files: JSON objects, lists or pages of them, or one object per line."`
	User     string   `placeholder:"NAME" help:"The caller of memories that name none."`
	DryRun   bool     `name:"dry-run" help:"Read the memories, and send nothing."`
	Products []string `arg:"" optional:"" name:"product" help:"zep, mem0, redis or hindsight."`
}

// Help returns the details.
func (*Memories) Help() string {
	return "Makes facts of what another product remembers of callers, with the times that it has. A memory that was imported already is not imported twice. The exit code is 1 if one could not be imported."
}

// product is where a product has the parts of a memory. Each is the first of several paths that
// exists.
type product struct {
	lists []string // of pages
	text  []string
	id    []string
	user  []string // also of a page
	// created, seen, from and to are times.
	created, seen, from, to []string
	topics                  []string
	// kinds are the kinds of facts by the product's own, at the path kind.
	kind  []string
	kinds map[string]string
}

var products = map[string]product{
	"mem0": {
		lists: []string{"results", "memories"}, text: []string{"memory", "data"}, id: []string{"id"}, user: []string{"user_id"},
		created: []string{"created_at"}, seen: []string{"updated_at"}, to: []string{"expiration_date"}, topics: []string{"categories"},
	},
	"zep": {
		lists: []string{"edges", "facts", "relevant_facts"}, text: []string{"fact"}, id: []string{"uuid", "uuid_"}, user: []string{"user_id"},
		created: []string{"created_at"}, from: []string{"valid_at"}, to: []string{"invalid_at"},
	},
	"redis": {
		lists: []string{"memories"}, text: []string{"text"}, id: []string{"id", "memory_hash"}, user: []string{"user_id"},
		created: []string{"created_at"}, seen: []string{"last_accessed", "updated_at"}, topics: []string{"topics"},
		kind: []string{"memory_type"}, kinds: map[string]string{"episodic": "event"},
	},
	"hindsight": {
		lists: []string{"items", "results", "memories"}, text: []string{"text"}, id: []string{"id"}, user: []string{"bank_id", "metadata.user_id"},
		created: []string{"mentioned_at", "date"}, seen: []string{"updated_at"}, to: []string{"invalidated_at"}, topics: []string{"tags"},
		kind: []string{"fact_type", "type"}, kinds: map[string]string{"experience": "event"},
	},
}

// factMax is how many characters the content of a fact may have; see the API.
const (
	factMax   = 300
	topicMax  = 64
	topicsMax = 20
)

// fact is a fact as the API takes it.
type fact struct {
	ID        string   `json:"id,omitempty"`
	Content   string   `json:"content"`
	Kind      string   `json:"kind,omitempty"`
	Topics    []string `json:"topics,omitempty"`
	CreatedAt string   `json:"created_at,omitempty"`
	SeenAt    string   `json:"last_seen_at,omitempty"`
	ValidFrom string   `json:"valid_from,omitempty"`
	ValidTo   string   `json:"valid_to,omitempty"`
	By        string   `json:"by"`
	Cause     string   `json:"cause"`

	user  string
	short bool // the content was cut
}

// Import runs the subcommand against the server of the flags.
func (m *Memories) Import(ctx context.Context, e Env) error {
	names := slices.Sorted(maps.Keys(products))
	if len(m.Products) != 1 || !slices.Contains(names, m.Products[0]) {
		return fmt.Errorf("import-memory: name one product: %s", strings.Join(names, ", "))
	}
	if m.File == "" {
		return errors.New("import-memory: needs --file")
	}
	name := m.Products[0]
	p := products[name]
	n := &counts{n: map[string]int{}}
	to, began := m.client(), time.Now()
	cut, nobody := 0, 0
	// A page may name the user of all of its entries.
	user := m.User
	whole := func(v peek.Value) bool {
		if user = m.User; p.at(v, p.text).Str() != "" {
			return true
		}
		user = cmp.Or(p.at(v, p.user).Str(), user)
		return false
	}
	err := eachObject(m.File, p.lists, whole, func(_ entry, v peek.Value) error {
		f, ok := p.read(name, user, v, e.Now())
		switch {
		case !ok:
			n.add("failed", &statusError{0, "an entry without a text: " + text.Clip(string(v), maxShown)})
			return nil
		case f.user == "":
			nobody++
			n.add("ignored", nil)
			return nil
		case f.short:
			cut++
		}
		n.add(m.send(ctx, to, &f))
		return cmp.Or(n.stopped(), ctx.Err())
	})
	for _, text := range n.errors {
		fmt.Fprintln(e.Stderr, "import-memory:", text)
	}
	fmt.Fprintf(e.Stderr, "import-memory: %s in %s\n", n, time.Since(began).Round(10*time.Millisecond))
	if nobody > 0 {
		fmt.Fprintf(e.Stderr, "import-memory: %d name no caller; --user names one\n", nobody)
	}
	if cut > 0 {
		fmt.Fprintf(e.Stderr, "import-memory: %d were longer than %d characters, and were cut\n", cut, factMax)
	}
	if failed := n.n["failed"]; err == nil && failed > 0 {
		err = fmt.Errorf("%d memories could not be imported", failed)
	}
	return err
}

func (m *Memories) send(ctx context.Context, to *client, f *fact) (string, error) {
	if m.DryRun {
		return "read", nil
	}
	body, err := json.Marshal(f)
	if err != nil {
		return "failed", err
	}
	path := "/v1/users/" + url.PathEscape(f.user) + "/facts"
	if f.ID != "" { // what is there already needs no write
		var there struct{ Content string }
		err := to.call(ctx, http.MethodGet, path+"/"+url.PathEscape(f.ID), nil, &there)
		if err == nil && there.Content == f.Content {
			return "known", nil
		}
		if status, ok := errors.AsType[*statusError](err); err != nil && (!ok || status.status != http.StatusNotFound) {
			return "failed", err
		}
	}
	if err := to.call(ctx, http.MethodPost, path, body, nil); err != nil {
		return "failed", fmt.Errorf("%s: %w", f.ID, err)
	}
	return "filed", nil
}

// at returns the first value of several paths that exists and is not null.
func (p *product) at(v peek.Value, paths []string) peek.Value {
	for _, path := range paths {
		if found := v.Path(path); !found.IsNull() {
			return found
		}
	}
	return nil
}

// read returns an entry as a fact. user is the caller of entries that name none; f.user is empty
// for a caller who is not known. ok is false for an entry without a text.
func (p *product) read(name, user string, v peek.Value, now time.Time) (f fact, ok bool) {
	f = fact{By: "imported", Cause: name, Kind: p.kinds[p.at(v, p.kind).Str()]}
	f.Content = strings.Join(strings.Fields(strings.ReplaceAll(p.at(v, p.text).Str(), "\x00", "")), " ")
	if f.Content == "" {
		return f, false
	}
	f.Content, f.short = shorten(f.Content, factMax)
	if id := p.at(v, p.id).Text(); id != "" && len(id) <= 100 {
		f.ID = name + "-" + id
	}
	if caller, known := platform.Name(cmp.Or(p.at(v, p.user).Str(), user)); known {
		f.user = caller
	}
	for _, t := range p.at(v, p.topics).List() {
		if s, _ := shorten(strings.TrimSpace(t.Str()), topicMax); s != "" && len(f.Topics) < topicsMax && !slices.Contains(f.Topics, s) {
			f.Topics = append(f.Topics, s)
		}
	}
	created, seen := p.time(v, p.created), p.time(v, p.seen)
	if created.After(now) {
		created = time.Time{}
	}
	if created.IsZero() && !seen.After(now) {
		created = seen
	}
	f.CreatedAt = shown(created)
	if !created.IsZero() && seen.After(created) && !seen.After(now) {
		f.SeenAt = shown(seen)
	}
	from, until := p.time(v, p.from), p.time(v, p.to)
	f.ValidFrom = shown(from)
	if until.After(from) {
		f.ValidTo = shown(until)
	}
	return f, true
}

// time reads a time in the form of RFC 3339, with or without a zone, or a date; or in Unix seconds.
func (p *product) time(v peek.Value, paths []string) time.Time {
	at := p.at(v, paths)
	if at.IsNumber() {
		if s := at.Float(); s > 0 && s < 4e9 {
			return time.UnixMilli(int64(s * 1000))
		}
		return time.Time{}
	}
	for _, form := range []string{time.RFC3339, "2006-01-02T15:04:05.999999999", "2006-01-02 15:04:05.999999999Z07:00", time.DateOnly} {
		if t, err := time.Parse(form, at.Str()); err == nil {
			return t
		}
	}
	return time.Time{}
}

func shown(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z07:00")
}

// shorten cuts a text behind a word, to most characters.
func shorten(s string, most int) (string, bool) {
	if utf8.RuneCountInString(s) <= most {
		return s, false
	}
	s = string([]rune(s)[:most-1])
	if at := strings.LastIndexByte(s, ' '); at > 0 {
		s = s[:at]
	}
	return s + "…", true
}
