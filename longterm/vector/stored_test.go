package vector_test

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/heardlog/heardlog/longterm/vector"
	"github.com/heardlog/heardlog/store/record"
	"github.com/heardlog/heardlog/store/storetest"
)

// TestStored: records that an earlier version stored are read and changed, and
// what is stored now has the same form.
func TestStored(t *testing.T) {
	t.Parallel()
	store := storetest.New(t)
	c := collection{t, newService(store), vector.Collection{Project: "p", Name: "docs", User: "anna"}}
	head := `{"content":"one","metadata":{"k":1},"created_us":5000,"updated_ms":6,"dimensions":2,"made":[{"model":"m","dimensions":3,"scale":0.007874016}]}`
	body := append(binary.AppendUvarint(nil, uint64(len(head))), head...)
	body = append(body, "\x00\x00\x80?\x00\x00\x00\xc0"+"\x80\xff\x01"...) // 1, -2; 0, 1, -1
	for name, change := range map[string]record.Change{"vectors": {ID: "docs", Body: []byte(`{"dimensions":2}`)}, "vector/docs/": {ID: "a", Body: body}} {
		if _, err := store.ChangeRecords(t.Context(), record.Space{Project: "p", Name: name, User: "anna"}, []record.Change{change}, record.Limit{}, nil, 6); err != nil {
			t.Fatal(err)
		}
	}
	d, err := c.Get(t.Context(), c.Collection, "a")
	if err != nil || d.Content != "one" || string(d.Metadata) != `{"k":1}` || d.CreatedUS != 5000 || d.UpdatedMS != 6 || !slices.Equal(d.Embedding, []float32{1, -2}) {
		t.Errorf("%+v, %v", d, err)
	}
	if got := vector.Body(&d); !slices.Equal(got, body) {
		t.Errorf("it is stored as %q, want %q", got, body)
	}
	c.want(vector.Query{Embedding: []float32{2, -4}, K: 1, Filter: []byte(`{"k":1}`)}, "a 1")
	info, err := c.Describe(t.Context(), c.Collection)
	if err != nil || info.Dimensions != 2 || info.Documents != 1 {
		t.Errorf("%+v, %v", info, err)
	}
	c.put("a: two")
	if d, err = c.Get(t.Context(), c.Collection, "a"); err != nil || d.CreatedUS != 5000 || d.Content != "two" || d.UpdatedMS <= 6 {
		t.Errorf("replaced: %+v, %v", d, err)
	}
}
