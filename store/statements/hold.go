package statements

import (
	"errors"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/hold"
	"github.com/heardlog/heardlog/memory/memories"
	"github.com/heardlog/heardlog/store/encryption"
	"github.com/heardlog/heardlog/store/record"
)

// HeldBy joins the holds on agent a, as records hr: on itself, on its users, on its labels, and on
// the users of its messages.
const HeldBy = `record_space hs JOIN record hr ON hr.space_no = hs.no
	WHERE hs.project = a.project AND hs.name = '` + hold.Space + `' AND hs.user_id = '' AND hr.body IS NOT NULL AND hr.id IN (
		SELECT '` + hold.AgentKey + `' || a.id UNION ALL SELECT CASE WHEN ` + isUser + ` THEN '` + hold.UserKey + `' || hg.value
			ELSE '` + hold.LabelKey + `' || hg.name || '=' || hg.value END FROM agent_tag hg WHERE hg.agent_no = a.no
		UNION ALL SELECT '` + hold.UserKey + `' || hi.user_id FROM item hi WHERE hi.agent_no = a.no AND hi.user_id <> '')`

// isUser is a condition on tag hg; see memory.Tag.User.
const isUser = "hg.name IN ('', '" + memory.JoinedTag + "')"

// NotHeld is a condition on agent a.
const NotHeld = "NOT EXISTS (SELECT 1 FROM " + HeldBy + ")"

// DeliveryNotHeld is a condition on a row of table delivery: its event is about no agent under
// hold.
const DeliveryNotHeld = "NOT EXISTS (SELECT 1 FROM event he JOIN agent a ON a.no = he.agent_no WHERE he.no = event_no AND NOT " + NotHeld + ")"

// KeyNotHeld is a condition on a row of table kv: it does not belong to an agent under hold.
const KeyNotHeld = "(agent_no = 0 OR NOT EXISTS (SELECT 1 FROM agent a WHERE a.no = kv.agent_no AND NOT " + NotHeld + "))"

// Holds checks in a transaction that what it is about to erase is not under hold. Its methods
// return fault.Held with the hold. On PostgreSQL the transaction has the lock of the project's
// holds first.
type Holds struct {
	DB     Writer
	Sealer encryption.Sealer
}

// found returns the error of the first hold that a query selects by project, id and body.
func (c Holds) found(sql string, args ...any) error {
	var failed error
	_, err := first(c.DB, func(row Row) {
		at := record.Space{Project: row.Text(0), Name: hold.Space}
		body, err := OpenRecord(c.Sealer, row.Blob(2), at, row.Text(1))
		if err != nil {
			failed = fault.Wrap(fault.Held, err, "is under a hold that cannot be decrypted")
			return
		}
		h, err := hold.Decode(body)
		if failed = err; err == nil {
			failed = h.Err()
		}
	}, sql, args...)
	return errors.Join(err, failed)
}

const selectHold = "SELECT hs.project, hr.id, hr.body FROM "

// keyed selects a hold by the project and the ID of its record.
const keyed = selectHold + `record_space hs JOIN record hr ON hr.space_no = hs.no
	WHERE hs.project = ? AND hs.name = '` + hold.Space + `' AND hs.user_id = '' AND hr.body IS NOT NULL`

// Agent checks the agent with a number.
func (c Holds) Agent(no int64) error {
	return c.found(selectHold+"agent a CROSS JOIN "+HeldBy+" AND a.no = ? LIMIT 1", no)
}

// Erase checks an agent that is to be erased. That which keeps the items of no agent belongs to
// all callers of its project.
func (c Holds) Erase(project string, no int64) error {
	if of := memories.ProjectOf(project); of != project {
		return c.Project(of)
	}
	return c.Agent(no)
}

// User checks a caller of a project by one of its names.
func (c Holds) User(project, user string) error {
	return c.found(keyed+" AND hr.id = ? LIMIT 1", project, hold.UserKey+user)
}

// Project checks that a project has no hold.
func (c Holds) Project(project string) error { return c.found(keyed+" LIMIT 1", project) }

// Space checks a space of records that is to be emptied, or of which a record is to be deleted.
func (c Holds) Space(at record.Space) error {
	switch id := hold.AgentOf(at.Name); {
	case id != "":
		return c.found(selectHold+"agent a CROSS JOIN "+HeldBy+" AND a.project = ? AND a.id = ? LIMIT 1", at.Project, id)
	case at.User != "" && hold.Keeps(at.Name):
		return c.User(at.Project, at.User)
	}
	return nil
}

// Spaces checks spaces of records that are to be deleted.
func (c Holds) Spaces(list []SpaceRow) error {
	for i := range list {
		check := c.Space
		if list[i].At.Name == hold.Space {
			check = func(at record.Space) error { return c.Project(at.Project) }
		}
		if err := check(list[i].At); err != nil {
			return err
		}
	}
	return nil
}

// Changes checks the deletions among changes of a space of records.
func (c Holds) Changes(at record.Space, changes []record.Change) error {
	space := at.Name != hold.Space
	for i := range changes {
		if changes[i].Body != nil {
			continue
		}
		if user := changes[i].Caller; user != "" {
			if err := c.User(at.Project, user); err != nil {
				return err
			}
		}
		if space {
			if err := c.Space(at); err != nil {
				return err
			}
			space = false
		}
	}
	return nil
}

// MustCheck reports whether a write may erase something that is under hold.
func MustCheck(w *memory.Write) bool {
	return len(w.Lost) > 0 || w.Change.Erases || len(w.Change.Removes()) > 0
}

// Write checks a write: what it erases, and that the agent keeps the users and labels that are
// under hold.
func (c Holds) Write(w *memory.Write) error {
	gone := w.Change.Removes()
	if w.Change.Erases || len(gone) > 0 {
		if err := c.Agent(w.No); err != nil {
			return err
		}
	}
	for _, seq := range gone {
		err := c.found(selectHold+`item i JOIN record_space hs ON hs.project = i.project JOIN record hr ON hr.space_no = hs.no
			WHERE i.agent_no = ? AND i.seq = ? AND i.user_id <> '' AND hs.name = '`+hold.Space+`' AND hs.user_id = '' AND hr.body IS NOT NULL AND hr.id = '`+hold.UserKey+`' || i.user_id LIMIT 1`, w.No, seq)
		if err != nil {
			return err
		}
	}
	for _, tag := range w.Lost {
		key := hold.LabelKey + tag.Name + "=" + tag.Value
		if user, is := tag.User(); is {
			key = hold.UserKey + user
		}
		if err := c.found(keyed+" AND hr.id = ? LIMIT 1", w.Project, key); err != nil {
			return err
		}
	}
	return nil
}
