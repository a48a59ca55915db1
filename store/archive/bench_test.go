package archive_test

import (
	"fmt"
	"testing"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store/archive"
)

// BenchmarkRead reads a whole call from the archive, with nothing in memory, and from its rows.
func BenchmarkRead(b *testing.B) {
	for _, n := range []int{41, 2000} {
		for _, in := range []string{"rows", "folder", "bucket"} {
			b.Run(fmt.Sprint(n, "/", in), func(b *testing.B) {
				f := newFixture(b, n)
				if in == "bucket" {
					f, _ = newBucket(b, n)
				}
				if in != "rows" {
					f.move(true)
				}
				for b.Loop() {
					s := archive.NewStore(f.s.Rows(), archive.New(f.place))
					st, err := s.Load(b.Context(), "p", f.call.ID, n, memory.Version{})
					if err != nil || len(st.Tail) != n {
						b.Fatal(len(st.Tail), err)
					}
				}
			})
		}
	}
}

// BenchmarkMove moves a call into a folder and back.
func BenchmarkMove(b *testing.B) {
	for _, n := range []int{41, 2000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			f := newFixture(b, n)
			s := archive.NewStore(f.s.Rows(), archive.New(f.place))
			b.Run("move", func(b *testing.B) {
				for b.Loop() {
					f.move(true)
					b.StopTimer()
					if err := s.Thaw(b.Context(), f.call.Ref()); err != nil {
						b.Fatal(err)
					}
					b.StartTimer()
				}
			})
			b.Run("back", func(b *testing.B) {
				for b.Loop() {
					b.StopTimer()
					f.move(true)
					b.StartTimer()
					if err := s.Thaw(b.Context(), f.call.Ref()); err != nil {
						b.Fatal(err)
					}
				}
			})
		})
	}
}
