package export_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store"
	"github.com/heardlog/heardlog/store/engine"
	"github.com/heardlog/heardlog/store/export"
	"github.com/heardlog/heardlog/store/postgres"
	"github.com/heardlog/heardlog/store/postgres/postgrestest"
	"github.com/heardlog/heardlog/store/sqlite"
)

// place is where a store is: it is opened to be used, read and imported into, one after the other.
type place struct {
	use    func(t *testing.T, fn func(whole))
	read   func(t *testing.T) export.Source
	target func(t *testing.T) (export.Target, func())
}

func places() map[string]func(t *testing.T) place {
	return map[string]func(t *testing.T) place{
		"sqlite": func(t *testing.T) place {
			o := sqlite.Options{Path: filepath.Join(t.TempDir(), "h.db"), SealKey: []byte("of sqlite")}
			return place{
				use: func(t *testing.T, fn func(whole)) {
					s := must(store.OpenSQLite(t.Context(), o, engine.Options{}))
					fn(s)
					if err := s.Close(); err != nil {
						t.Fatal(err)
					}
				},
				read: func(t *testing.T) export.Source {
					r := must(sqlite.OpenReader(o))
					t.Cleanup(func() { _ = r.Close() })
					return r
				},
				target: func(t *testing.T) (export.Target, func()) {
					m := must(sqlite.OpenImporter(o))
					return m, func() {
						if err := m.Close(); err != nil {
							t.Fatal(err)
						}
					}
				},
			}
		},
		"postgres": func(t *testing.T) place {
			s := must(store.OpenPostgres(t.Context(), postgres.Options{URL: postgrestest.URL(t), SealKey: []byte("of postgres")}, engine.Options{}))
			t.Cleanup(func() { _ = s.Close() })
			return place{
				func(_ *testing.T, fn func(whole)) { fn(s) }, func(*testing.T) export.Source { return s }, func(*testing.T) (export.Target, func()) { return s, func() {} },
			}
		},
	}
}

// filled returns a store with what fill puts into it, for reading.
func filled(t *testing.T) export.Source {
	t.Helper()
	p := places()["sqlite"](t)
	p.use(t, func(s whole) { fill(t, s) })
	return p.read(t)
}

// TestPairs: what any store gives, put into an empty one of any driver, is given again byte for
// byte, whole and in parts, with secrets and without; nothing is wrong with the copy, which goes on
// as a store, and a second import of the same is refused.
func TestPairs(t *testing.T) {
	t.Parallel()
	for from, openFrom := range places() {
		for to, openTo := range places() {
			t.Run(from+" to "+to, func(t *testing.T) {
				t.Parallel()
				a := openFrom(t)
				a.use(t, func(s whole) { fill(t, s) })
				source := a.read(t)
				for _, tt := range []struct {
					name    string
					scope   export.Scope
					secrets bool
				}{
					{"whole", export.Scope{}, true}, {"without secrets", export.Scope{}, false}, {"a project", export.Scope{Project: "p"}, true}, {"an agent", export.Scope{Project: "p", Agent: "a"}, true},
				} {
					t.Run(tt.name, func(t *testing.T) {
						want := dump(t, source, tt.scope, tt.secrets)
						if hidden := strings.Contains(want, "hidden"); hidden != tt.secrets {
							t.Errorf("secrets are in the export: %t, want %t", hidden, tt.secrets)
						}
						b := openTo(t)
						target, done := b.target(t)
						if _, resumed, err := export.Read(t.Context(), strings.NewReader(want), target, nil); err != nil || resumed {
							t.Fatalf("import: resumed %t, error %v", resumed, err)
						}
						if _, _, err := export.Read(t.Context(), strings.NewReader(want), target, nil); !fault.Is(err, fault.Conflict) {
							t.Errorf("a second import: error %v, want a conflict", err)
						}
						done()
						copied := b.read(t)
						if d := cmp.Diff(strings.Split(want, "\n"), strings.Split(dump(t, copied, tt.scope, tt.secrets), "\n")); d != "" {
							t.Errorf("the copy's export (-want +got):\n%s", d)
						}
						if bad := forget(findings(t, copied)); len(bad) > 0 {
							t.Errorf("the copy has %q", bad)
						}
						b.use(t, func(s whole) {
							used, err := s.Usage(t.Context())
							i := slices.IndexFunc(used, func(u memory.Usage) bool { return u.Project == "p" })
							if err != nil || i < 0 || used[i].Messages < 8 || used[i].Bytes < 40 {
								t.Errorf("the copy uses %+v, error %v", used, err)
							}
							h, err := s.Head(t.Context(), "p", "a")
							if err != nil || h.NextSeq != 9 || h.Rev != 3 || h.LastTurn != 4 || h.Last.Seq != 7 {
								t.Errorf("head of the copy: next %d, revision %d, last turn %d, last message %d, error %v", h.NextSeq, h.Rev, h.LastTurn, h.Last.Seq, err)
							}
						})
					})
				}
			})
		}
	}
}

// forget leaves the mark out that the second, refused import has left.
func forget(list []string) (out []string) {
	for _, s := range list {
		if !strings.Contains(s, "import was not finished") {
			out = append(out, s)
		}
	}
	return out
}

// breaking is a target that stops taking after some batches, as if its process had ended.
type breaking struct {
	export.Target
	left int
}

var errBroken = errors.New("broken")

func (b *breaking) Import(ctx context.Context, batch []export.Record, had, mark []byte) error {
	if b.left--; b.left < 0 {
		return errBroken
	}
	return b.Target.Import(ctx, batch[:len(batch):len(batch)], had, mark)
}

// TestResume: an import that was cut short goes on where it was, and what comes out has everything
// once; another export is refused meanwhile.
func TestResume(t *testing.T) {
	t.Parallel()
	for name, open := range places() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := filled(t)
			want := dump(t, a, export.Scope{}, true)
			for _, left := range []int{0, 1, 7, 20, 40} {
				b := open(t)
				target, done := b.target(t)
				_, _, err := export.ReadInBatches(t.Context(), strings.NewReader(want), &breaking{target, left}, nil, 1)
				if !errors.Is(err, errBroken) {
					t.Fatalf("after %d: %v", left, err)
				}
				if left > 0 {
					if _, _, err := export.Read(t.Context(), strings.NewReader(dump(t, a, export.Scope{Project: "q"}, true)), target, nil); !fault.Is(err, fault.Conflict) {
						t.Errorf("another export meanwhile: %v, want a conflict", err)
					}
				}
				if _, resumed, err := export.Read(t.Context(), strings.NewReader(want), target, nil); err != nil || resumed != (left > 0) {
					t.Fatalf("after %d: resumed %t, error %v", left, resumed, err)
				}
				done()
				if got := dump(t, b.read(t), export.Scope{}, true); got != want {
					t.Errorf("after %d: %s", left, cmp.Diff(want, got))
				}
			}
		})
	}
}

// TestDamaged: an export that was changed, cut or made longer is refused, with the line.
func TestDamaged(t *testing.T) {
	t.Parallel()
	a := filled(t)
	good := dump(t, a, export.Scope{}, true)
	for _, tt := range []struct{ name, text, want string }{
		{"empty", "", "ends in the middle"},
		{"something else", "{}\n", "line 1 is not the first"},
		{"a newer version", strings.Replace(good, `"heardlog_export":1`, `"heardlog_export":2`, 1), "version 2"},
		{"a letter", strings.Replace(good, "hi there", "hi thera", 1), "checksum"},
		{"cut", good[:len(good)/2], "ends in the middle"},
		{"without the last line", good[:strings.LastIndex(strings.TrimSpace(good), "\n")+1], "ends in the middle"},
		{"longer", good + "{}\n", "follows the last line"},
		{"no record", strings.Replace(good, "\n", "\n{}\n", 1), "line 2"},
		{"an unknown field", strings.Replace(good, `{"endpoint":{`, `{"endpoint":{"x":1,`, 1), "line 2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, _, err := export.Check(t.Context(), strings.NewReader(tt.text))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

// TestClaimed: a try that is under way when a delivery is exported is not counted, whatever the
// store notes of it, so that the copy has as many tries left.
func TestClaimed(t *testing.T) {
	t.Parallel()
	for name, open := range places() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := open(t)
			var got []int
			// While the store that has claimed it is open: what one process claims is free when
			// that ends.
			p.use(t, func(s whole) {
				fill(t, s)
				from, ok := s.(export.Source)
				if !ok {
					from = p.read(t)
				}
				err := from.Export(t.Context(), export.Scope{}, func(r export.Record) error {
					if d := r.Delivery; d != nil {
						if d.Attempt != len(d.Attempts) {
							t.Errorf("delivery %d counts %d attempts and has %d", d.ID, d.Attempt, len(d.Attempts))
						}
						got = append(got, d.Attempt)
					}
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
			if len(got) < 5 {
				t.Errorf("%d deliveries", len(got))
			}
		})
	}
}
