package postgres_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store"
	"github.com/heardlog/heardlog/store/engine"
	"github.com/heardlog/heardlog/store/postgres"
	"github.com/heardlog/heardlog/store/postgres/postgrestest"
)

// filled returns a value of the type that is not its zero value.
func filled(t *testing.T, of reflect.Type) reflect.Value {
	t.Helper()
	v := reflect.New(of).Elem()
	switch {
	case of == reflect.TypeFor[json.RawMessage]():
		v.SetBytes([]byte(`{"a": [1, "é<\u2028"]}`))
	case of.Kind() == reflect.String:
		v.SetString("é\"\\\n<\x00\u2028😀")
	case of.Kind() == reflect.Bool:
		v.SetBool(true)
	case v.CanInt():
		v.SetInt(-7)
	case v.CanFloat():
		v.SetFloat(0.1)
	case of.Kind() == reflect.Pointer:
		v.Set(filled(t, of.Elem()).Addr())
	case of.Kind() == reflect.Slice:
		v.Set(reflect.Append(v, filled(t, of.Elem())))
	case of.Kind() == reflect.Map:
		v.Set(reflect.MakeMap(of))
		v.SetMapIndex(filled(t, of.Key()), filled(t, of.Elem()))
		v.SetMapIndex(reflect.ValueOf("b"), reflect.ValueOf(json.RawMessage(`null`)))
	case of.Kind() == reflect.Struct:
		for i := range of.NumField() {
			v.Field(i).Set(filled(t, of.Field(i).Type))
		}
	default:
		t.Fatalf("no value of %v", of)
	}
	return v
}

// TestEveryField checks that every field of a message survives storage: each one alone, all but
// one, and all together.
func TestEveryField(t *testing.T) {
	t.Parallel()
	to := postgrestest.URL(t)
	s, err := store.OpenPostgres(t.Context(), postgres.Options{URL: to}, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	create(t, s, agent(0))
	own := map[string]bool{"Seq": true, "Rev": true, "ID": true, "TurnID": true, "GivenTurn": true}
	var want []memory.Message
	add := func(m memory.Message) {
		n := int64(len(want) + 1)
		m.Seq, m.Rev, m.TurnID, m.ID, m.GivenTurn = n, n+1, n, fmt.Sprint("m", n), false
		want = append(want, m)
	}
	all := filled(t, reflect.TypeFor[memory.Message]()).Interface().(memory.Message)
	add(all)
	for f := range reflect.TypeFor[memory.Message]().NumField() {
		field := reflect.TypeFor[memory.Message]().Field(f)
		if own[field.Name] {
			continue
		}
		m := memory.Message{Role: memory.User}
		reflect.ValueOf(&m).Elem().Field(f).Set(filled(t, field.Type))
		add(m)
		m = all
		reflect.ValueOf(&m).Elem().Field(f).SetZero()
		add(m)
	}
	for _, m := range want { // one at a time, so that each is written in the way of a lone append
		if err := s.Update(t.Context(), "acme", agent(0).ID, func(memory.AgentView) (memory.Change, error) { return memory.Change{Append: []memory.Message{m}}, nil }); err != nil {
			t.Fatal(err)
		}
	}
	other, err := store.OpenPostgres(t.Context(), postgres.Options{URL: to}, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	for name, from := range map[string]*store.Postgres{"memory": s, "database": other} {
		got, err := from.Messages(t.Context(), "acme", agent(0).ID, memory.MessageQuery{Limit: len(want) + 1})
		if d := cmp.Diff(want, got); err != nil || d != "" {
			t.Errorf("%v; from %s (-want +got):\n%s", err, name, d)
		}
	}
}
