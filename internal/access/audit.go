package access

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/memory/kv"
)

// Bounds of the audit log.
const (
	MaxActs     = 10_000 // of one project, and as many on its endpoints; the oldest make room
	MaxActsPage = 100
	dropActs    = 10 // deleted at a time
	maxTarget   = 300
)

// CommandLine is the By of acts that a subcommand did on the store.
const CommandLine = "command line"

// Act is an administrative act.
type Act struct {
	AtMS      int64  `json:"at"`                // Unix ms
	By        string `json:"by,omitempty"`      // ID of the credential, or CommandLine; "" on an open server
	Address   string `json:"address,omitempty"` // of the connection, without the port
	What      string `json:"act"`               // noun.verb, such as key.create
	On        string `json:"target,omitempty"`  // ID of what was created, changed or erased
	Status    int    `json:"status,omitempty"`  // HTTP status; from 500 on the act may be unfinished
	RequestID string `json:"request_id,omitempty"`
}

// Audit keeps the administrative acts of each project. It is safe for concurrent use.
type Audit struct {
	Store kv.Store
	Now   func() time.Time
}

// actsOf returns where a project's acts are. Their keys sort by time, newest first. Acts on
// endpoints have a space of their own: a key with the scope Webhooks must not push the others out.
func actsOf(project string) kv.Space { return kv.Space{Project: "~audit/" + project} }

func endpointActsOf(project string) kv.Space {
	return kv.Space{Project: "~audit-endpoints/" + project}
}

// Record stores an act as of now.
func (a *Audit) Record(ctx context.Context, project string, act Act) error {
	now := a.Now()
	act.AtMS, act.On = now.UnixMilli(), text.Clip(act.On, maxTarget)
	b, err := json.Marshal(act)
	if err != nil {
		return fault.Wrap(fault.Internal, err, "an act cannot be stored")
	}
	var random [8]byte
	if _, err := rand.Read(random[:]); err != nil {
		return fault.Wrap(fault.Internal, err, "no random numbers")
	}
	e := kv.Entry{
		Key:   fmt.Sprintf("%019d-%s", math.MaxInt64-now.UnixNano(), hex.EncodeToString(random[:])),
		Value: b, UpdatedMS: act.AtMS, ExpiresMS: kv.Never,
	}
	space := actsOf(project)
	if strings.HasPrefix(act.What, "endpoint.") {
		space = endpointActsOf(project)
	}
	put := func() error { return kv.Put(ctx, a.Store, space, e, kv.Limit{Keys: MaxActs}, 0) }
	err = put()
	for range 3 { // others may take the room that was made
		if !fault.Is(err, fault.Quota) {
			break
		}
		if err := a.drop(ctx, space); err != nil {
			return err
		}
		err = put()
	}
	return err
}

// drop deletes the oldest acts of a full log.
func (a *Audit) drop(ctx context.Context, space kv.Space) error {
	page, err := a.Store.ListKeys(ctx, space, "", MaxActs, 0)
	if err != nil {
		return err
	}
	for _, k := range page.Keys[max(0, len(page.Keys)-dropActs):] {
		if _, err := a.Store.DeleteKey(ctx, space, k.Key, 0); err != nil {
			return err
		}
	}
	return nil
}

// List returns up to limit acts of a project after the cursor of the page before, newest first, and
// the cursor of the next page, "" on the last.
func (a *Audit) List(ctx context.Context, project, cursor string, limit int) (acts []Act, next string, err error) {
	type place struct {
		space kv.Space
		key   string
	}
	var places []place
	for _, space := range []kv.Space{actsOf(project), endpointActsOf(project)} {
		page, err := a.Store.ListKeys(ctx, space, cursor, limit+1, 0)
		if err != nil {
			return nil, "", err
		}
		for _, k := range page.Keys {
			places = append(places, place{space, k.Key})
		}
	}
	slices.SortFunc(places, func(a, b place) int { return cmp.Compare(a.key, b.key) })
	acts = []Act{}
	for i, p := range places {
		if i == limit {
			return acts, places[i-1].key, nil
		}
		e, err := kv.Get(ctx, a.Store, p.space, p.key, 0)
		if fault.Is(err, fault.NotFound) {
			continue // made room for a newer one
		}
		var act Act
		if err == nil {
			err = json.Unmarshal(e.Value, &act)
		}
		if err != nil {
			return nil, "", err
		}
		acts = append(acts, act)
	}
	return acts, "", nil
}
