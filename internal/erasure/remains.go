package erasure

import (
	"context"
	"fmt"
	"time"

	"github.com/heardlog/heardlog/internal/backup"
	"github.com/heardlog/heardlog/internal/fault"
)

// Settings are what a server has beside the store, for receipts.
type Settings struct {
	Backups *backup.Schedule // nil = there are none
	Archive bool             // calls that ended long ago are in an archive
	// Postgres is set if the store is a PostgreSQL database.
	Postgres bool
	// Offline is set in a command, which does not reach the provider.
	Offline bool
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
	What    string     `json:"what"` // as in openapi.yaml
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
	if s.Settings.Postgres {
		where[0].Note = "deleted from the tables; PostgreSQL reuses the space after its next vacuum"
	}
	if n.Held {
		where[0].State, where[0].Note = "held", "it was erased, came back with a backup, and is under hold now"
		remains = append(remains, Remain{What: "hold", Reason: "something of it is under hold; see GET /v1/holds. It is erased again within minutes of the end of the hold"})
	}
	if s.Settings.Archive {
		where = append(where, Place{"archive", where[0].State, "its objects and their keys are deleted; a copy of an object can be read only with the keys in a backup from before"})
	}
	if s.Settings.Provider != "" {
		place, remain := s.provider(n)
		where, remains = append(where, place...), append(remains, remain)
	}
	place, left := s.inLedger(ctx, n)
	where, remains = append(where, place), append(remains, left...)
	if n.SharedN > 0 {
		remains = append(remains, Remain{What: "shared_agents", Reason: "others spoke there too; messages with the user's scope were removed from them", Count: n.SharedN, Agents: n.Shared})
	}
	if s.Settings.Backups != nil {
		if r, ok := s.backups(ctx, max(n.AskedMS, n.DoneMS)); ok {
			remains = append(remains, r)
		}
	}
	sent := Remain{What: "deliveries", Reason: "receivers of webhooks have what was delivered to them before"}
	if n.Kind != OfProject {
		sent.Reason += "; events about facts (memory.fact.*) that were waiting may still be delivered, and stay for as long as events do"
		remains = append(remains, Remain{What: "conversations", Reason: "saved conversations (GET /v1/saved-conversations) belong to no agent and no user; delete those that repeat it"})
	}
	return where, append(remains, sent, Remain{What: "audit", Reason: "the audit log has who erased it and when, with the ID of the agent, the name of the user or that of the project"})
}

// provider returns what was erased at the provider of keys and values, and what remains there.
func (s *Service) provider(n *Noted) ([]Place, Remain) {
	name := s.Settings.Provider
	if n.Offline {
		return nil, Remain{What: "provider", Reason: "heardlog erase does not reach " + name + ": the keys of what was erased are there until they expire or you delete them"}
	}
	note := "the working memory of each erased agent was deleted from " + name
	if n.Kind == OfProject {
		note = "keys were deleted from " + name
	}
	return []Place{{"provider", "erased", note}}, Remain{What: "provider", Reason: "snapshots and replicas of " + name + " are not known here; they have deleted keys for as long as you keep them"}
}

// inLedger returns whether the ledger has an erasure, and what that leaves.
func (s *Service) inLedger(ctx context.Context, n *Noted) (Place, []Remain) {
	missing := func(note, reason string) (Place, []Remain) {
		return Place{"ledger", "missing", note}, []Remain{{What: "ledger", Reason: reason}}
	}
	if s.Ledger == nil {
		return missing("HEARDLOG_ERASURES names no ledger", "there is no ledger of erasures: what is restored from an earlier backup comes back")
	}
	switch _, err := s.Ledger.get(ctx, n.name()); {
	case fault.Is(err, fault.NotFound):
		return missing("this ledger does not have it", "it was erased with another ledger or without one, or its entry was taken out: what is restored from an earlier backup comes back")
	case err != nil:
		return missing("its entry cannot be read now", "if the ledger does not have it, what is restored from an earlier backup comes back")
	}
	return Place{"ledger", "noted", "applied again to databases that are restored beside this ledger"}, nil
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
