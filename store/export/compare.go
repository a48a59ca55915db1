package export

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
)

// errEnough ends an export early.
var errEnough = errors.New("enough was seen")

// Empty reports whether a store holds nothing at all.
func Empty(ctx context.Context, from Source) (bool, error) {
	err := from.Export(ctx, Scope{}, func(r Record) error {
		if r.Start != nil {
			return nil
		}
		return errEnough
	})
	if errors.Is(err, errEnough) {
		return false, nil
	}
	return err == nil, err
}

// Comparison is what a store holds of an export.
type Comparison struct {
	// Same is set if an export of the store with the same scope is the same bytes.
	Same bool
	// Lacks names the first record of the export that the store does not hold unchanged; "" if it
	// holds all. Endpoints and keys are not compared, because existing ones stay, and IDs of
	// deliveries do not count.
	Lacks string
	Want  Counts // of the export
	Have  Counts // of the store
}

// Compare reads an export to its end and looks for each of its records in a store, which it reads
// once, in the same order. An import keeps the order of its records whatever else the store holds,
// so nothing has to be remembered. Compare fails if the export is damaged. progress, if not nil, is
// called after each record.
func Compare(ctx context.Context, r io.Reader, from Source, progress func(Counts)) (c Comparison, err error) {
	in, h, err := newReader(r, nil)
	if err != nil {
		return c, err
	}
	defer in.close()
	var want []byte // the line to find; nil after the last
	var name string
	var last *End
	next := func() error {
		for {
			rec, _, end, err := in.next()
			if err != nil || end != nil {
				want, last = nil, end
				return err
			}
			if rec.Key == nil && rec.Endpoint == nil {
				want, err = comparable(rec, in.raw)
				name = rec.name()
				return err
			}
		}
	}
	if err := next(); err != nil {
		return c, err
	}
	var bad error // of the export
	got, err := write(ctx, io.Discard, from, h.Scope, h.Secrets, func(rec Record, b []byte) error {
		if progress != nil {
			c.Have.Add(rec)
			progress(c.Have)
		}
		if want == nil {
			return nil
		}
		b, err := comparable(rec, b)
		if err == nil && bytes.Equal(b, want) {
			err = next()
			bad = err
		}
		return err
	})
	if bad != nil {
		return c, bad
	}
	if err != nil {
		return c, err
	}
	c.Have = got.Counts
	if want != nil {
		c.Lacks = name
	}
	for want != nil { // counts the rest and checks that the export is whole
		if err := next(); err != nil {
			return c, err
		}
	}
	c.Want, c.Same = last.Counts, last.SHA256 == got.SHA256
	return c, ctx.Err()
}

// comparable returns a record's line without its end and without what an import may change: the ID
// of a delivery, the revision of a space.
func comparable(r Record, line []byte) ([]byte, error) {
	if r.Message != nil { // its line does not name its agent
		return append([]byte(r.Message.Project+"\x00"+r.Message.AgentID+"\x00"), bytes.TrimSuffix(line, []byte("\n"))...), nil
	}
	if r.Value != nil {
		v := *r.Value
		v.SpaceRev = 0
		return encode(Record{Value: &v})
	}
	if r.Delivery == nil {
		return bytes.Clone(bytes.TrimSuffix(line, []byte("\n"))), nil
	}
	d := *r.Delivery
	if d.ReplayOf != 0 {
		d.ReplayOf -= d.ID
	}
	d.ID = 0
	return encode(Record{Delivery: &d})
}

// name returns which record it is.
func (r *Record) name() string {
	switch {
	case r.Key != nil:
		return "key " + r.Key.Name
	case r.Endpoint != nil:
		return "endpoint " + r.Endpoint.ID
	case r.Agent != nil:
		return fmt.Sprintf("agent %s of project %s", r.Agent.ID, r.Agent.Project)
	case r.Message != nil:
		return fmt.Sprintf("message %d of agent %s of project %s", r.Message.Seq, r.Message.AgentID, r.Message.Project)
	case r.Item != nil:
		return fmt.Sprintf("item %s of project %s", r.Item.Row.ID, r.Item.Row.Project)
	case r.Working != nil:
		return fmt.Sprintf("key %s of agent %s of project %s", r.Working.Key, r.Working.AgentID, r.Working.Project)
	case r.Conversation != nil:
		return fmt.Sprintf("conversation %s of project %s", r.Conversation.ID, r.Conversation.Project)
	case r.Value != nil:
		return fmt.Sprintf("record %s of %s of project %s", r.Value.ID, r.Value.Name, r.Value.Project)
	case r.Event != nil:
		return "event " + r.Event.ID
	case r.Delivery != nil:
		return fmt.Sprintf("delivery %d", r.Delivery.ID)
	}
	return "nothing"
}
