package erasure

import (
	"context"
	"fmt"
	"time"

	"github.com/heardlog/heardlog/internal/backup"
)

// Settings are what a server has beside the store, for receipts.
type Settings struct {
	Backups *backup.Schedule // nil = there are none
	Archive bool             // calls that ended long ago are in an archive
	// Provider is the server that keeps keys and values beside the store, "" for none.
	Provider string
}

// Place is somewhere that was erased.
type Place struct {
	Place string `json:"place"` // store, archive, provider or ledger
	State string `json:"state"` // erased, held, noted or missing
	Note  string `json:"note"`
}

// Remain is something that an erasure leaves, and why.
type Remain struct {
	What    string     `json:"what"` // shared_agents, hold, backups, provider, deliveries or ledger
	Reason  string     `json:"reason"`
	Count   int        `json:"count,omitempty"`
	Agents  []string   `json:"agents,omitempty"`  // the first of them
	Backups []string   `json:"backups,omitempty"` // names, oldest first
	Until   *time.Time `json:"until,omitempty"`   // about when it is gone
}

// backupTime is how long the list of backups may take.
const backupTime = 10 * time.Second

// Receipt returns where an erasure erased, and what remains now.
func (s *Service) Receipt(ctx context.Context, n *Noted) (where []Place, remains []Remain) {
	where = append(where, Place{"store", "erased", "deleted from the tables and files of the store"})
	if n.Held {
		where[0].State, where[0].Note = "held", "it was erased, came back with a backup, and is under hold now"
		remains = append(remains, Remain{What: "hold", Reason: "something of it is under hold; see GET /v1/holds. It is erased again within minutes of the end of the hold"})
	}
	if s.Settings.Archive {
		where = append(where, Place{"archive", where[0].State, "the keys of its objects are destroyed, so that no copy of an object can be read, and the objects are deleted"})
	}
	if s.Settings.Provider != "" && n.Kind != OfUser {
		where = append(where, Place{"provider", "erased", "keys were deleted from " + s.Settings.Provider})
		remains = append(remains, Remain{What: "provider", Reason: "snapshots and replicas of " + s.Settings.Provider + " are not known here; they have deleted keys for as long as you keep them"})
	}
	if s.Ledger != nil {
		where = append(where, Place{"ledger", "noted", "applied again to databases that are restored beside this ledger"})
	} else {
		where = append(where, Place{"ledger", "missing", "HEARDLOG_ERASURES names no ledger"})
		remains = append(remains, Remain{What: "ledger", Reason: "there is no ledger of erasures: what is restored from an earlier backup comes back"})
	}
	if n.SharedN > 0 {
		remains = append(remains, Remain{What: "shared_agents", Reason: "others spoke there too; messages with the user's scope were removed from them", Count: n.SharedN, Agents: n.Shared})
	}
	if s.Settings.Backups != nil {
		if r, ok := s.backups(ctx, max(n.AskedMS, n.DoneMS)); ok {
			remains = append(remains, r)
		}
	}
	return where, append(remains, Remain{What: "deliveries", Reason: "receivers of webhooks have what was delivered to them before; nothing more is sent"})
}

// backups returns the backups that were made before a time, Unix ms; false if there are none.
func (s *Service) backups(ctx context.Context, beforeMS int64) (r Remain, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, backupTime)
	defer cancel()
	r = Remain{What: "backups", Reason: "scheduled backups of before are not changed; a restore applies the erasure again"}
	list, err := s.Settings.Backups.Kept(ctx)
	if err != nil {
		r.Reason = "the scheduled backups cannot be listed now: those of before the erasure are not changed"
		return r, true
	}
	for _, b := range list {
		if b.Made.UnixMilli() <= beforeMS {
			r.Backups = append(r.Backups, b.Name)
			until := b.Until.UTC().Truncate(time.Second)
			r.Until = &until // of the newest
		}
	}
	if r.Count = len(r.Backups); r.Count == 0 {
		return r, false
	}
	r.Reason += fmt.Sprintf("; they are removed as newer ones are made, the last about %s", r.Until.Format(time.RFC3339))
	return r, true
}
