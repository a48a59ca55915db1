package vector_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/heardlog/heardlog/job"
	"github.com/heardlog/heardlog/longterm/vector"
	"github.com/heardlog/heardlog/store/record"
	"github.com/heardlog/heardlog/store/storetest"
)

// listed is a store of one space whose records are a list in order of their revisions, from 1.
type listed struct {
	record.Store
	list []record.Record
}

func (l *listed) Records(_ context.Context, _ record.Space, q record.Query) ([]record.Record, record.State, error) {
	from := min(int(q.AfterRev), len(l.list))
	state := record.State{Rev: int64(len(l.list)), Count: int64(len(l.list))}
	return l.list[from:min(from+q.Limit, len(l.list))], state, nil
}

func (l *listed) Record(_ context.Context, _ record.Space, id string) (record.Record, error) {
	n, err := strconv.Atoi(id)
	return l.list[n], err
}

// benchmark searches a collection of documents that make returns.
func benchmark(b *testing.B, n int, make func(rnd *rand.Rand) vector.Document, query func(rnd *rand.Rand) vector.Query) {
	rnd := rand.New(rand.NewPCG(1, 2))
	c := vector.Collection{Project: "p", Name: "bench"}
	l := &listed{Store: storetest.New(b)}
	for i := range n {
		d := make(rnd)
		d.CreatedUS = int64(i)
		l.list = append(l.list, record.Record{ID: fmt.Sprint(i), Rev: int64(i) + 1, Body: vector.Body(&d)})
	}
	s := vector.New(job.New(job.Config{}), vector.Config{Store: l, MaxMB: 4096, Now: time.Now})
	began := time.Now()
	if _, err := s.Search(b.Context(), c, query(rnd)); err != nil {
		b.Fatal(err)
	}
	b.Logf("%d documents were loaded in %v", n, time.Since(began))
	for b.Loop() {
		if _, err := s.Search(b.Context(), c, query(rnd)); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkEmbeddings searches 100,000 embeddings of 1,536 numbers.
func BenchmarkEmbeddings(b *testing.B) {
	embedding := func(rnd *rand.Rand) []float32 {
		v := make([]float32, 1536)
		for i := range v {
			v[i] = float32(rnd.NormFloat64())
		}
		return v
	}
	benchmark(b, 100_000, func(rnd *rand.Rand) vector.Document {
		return vector.Document{Embedding: embedding(rnd), Metadata: []byte("{}")}
	},
		func(rnd *rand.Rand) vector.Query { return vector.Query{Embedding: embedding(rnd), K: 10} })
}

// BenchmarkTexts searches 100,000 texts of 50 words out of 20,000.
func BenchmarkTexts(b *testing.B) {
	text := func(rnd *rand.Rand, n int) string {
		var s strings.Builder
		for range n {
			x := rnd.Float64()
			fmt.Fprintf(&s, "w%d ", int(x*x*x*20_000))
		}
		return s.String()
	}
	benchmark(b, 100_000, func(rnd *rand.Rand) vector.Document {
		return vector.Document{Content: text(rnd, 50), Metadata: []byte(`{"lang":"en"}`)}
	},
		func(rnd *rand.Rand) vector.Query { return vector.Query{Text: text(rnd, 6), K: 10} })
}
