package storetest

import (
	"context"
	"testing"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory/kv"
)

// testWorkingEvict: uses are counted, and what is pinned or was set since it was listed stays.
func testWorkingEvict(t *testing.T, ctx context.Context, s WorkingStore) {
	evicter, ok := s.(kv.Evicter)
	if !ok {
		t.Fatal("the store evicts nothing")
	}
	a := create(t, ctx, s, newAgent(1))
	named := kv.Space{Project: project, Name: "n"}
	for _, space := range []kv.Space{{Project: project, Agent: a.ID}, named} {
		set := func(key string, at int64, pinned bool) {
			e := kv.Entry{Key: key, Value: []byte(`"v"`), UpdatedMS: at, ExpiresMS: kv.Never, Pinned: pinned}
			if err := kv.Put(ctx, s, space, e, wide, at); err != nil {
				t.Fatal(err)
			}
		}
		set("pinned", 1000, true)
		set("plain", 1000, false)
		set("again", 1000, false)
		set("twice", 1000, false)
		set("twice", 1100, false)
		if err := evicter.TouchKeys(ctx, space, []kv.Use{{Key: "plain", Uses: 3, UsedMS: 1500}, {Key: "twice", Uses: 1, UsedMS: 900}, {Key: "none", Uses: 1, UsedMS: 1}}); err != nil {
			t.Fatal(err)
		}
		list := func() kv.Page {
			page, err := s.ListKeys(ctx, space, "", 10, 2000)
			if err != nil {
				t.Fatal(err)
			}
			return page
		}
		before := list()
		wantSame(t, "keys", before.Keys, []kv.Key{
			{Key: "again", Bytes: 8, UpdatedMS: 1000, ExpiresMS: kv.Never, UsedMS: 1000, Uses: 1},
			{Key: "pinned", Bytes: 9, UpdatedMS: 1000, ExpiresMS: kv.Never, Pinned: true, UsedMS: 1000, Uses: 1},
			{Key: "plain", Bytes: 8, UpdatedMS: 1000, ExpiresMS: kv.Never, UsedMS: 1500, Uses: 4},
			{Key: "twice", Bytes: 8, UpdatedMS: 1100, ExpiresMS: kv.Never, UsedMS: 1100, Uses: 3},
		})
		set("again", 1200, false)
		if n, err := evicter.EvictKeys(ctx, space, append(before.Keys, kv.Key{Key: "none"})); err != nil || n != 2 {
			t.Errorf("%d were evicted, %v", n, err)
		}
		if after := list(); after.Total != 2 || after.Bytes != 17 || after.Keys[0].Key != "again" || after.Keys[1].Key != "pinned" {
			t.Errorf("%+v", after)
		}
		got, err := kv.Get(ctx, s, space, "pinned", 2000)
		if err != nil || !got.Pinned {
			t.Errorf("%+v, %v", got, err)
		}
		set("pinned", 1300, false)
		if n, err := evicter.EvictKeys(ctx, space, list().Keys); err != nil || n != 2 {
			t.Errorf("%d were evicted, %v", n, err)
		}
	}
	if names, err := s.Spaces(ctx, project); err != nil || len(names) != 0 {
		t.Errorf("%v, %v", names, err)
	}
	if _, err := evicter.EvictKeys(ctx, kv.Space{Project: project, Agent: "none"}, []kv.Key{{Key: "k"}}); !fault.Is(err, fault.NotFound) {
		t.Errorf("%v of no agent", err)
	}
}
