package knowledge

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/heardlog/heardlog/longterm/recall"
	"github.com/heardlog/heardlog/store/record"
)

// A base beyond largeBytes has no index in memory, which would take seconds to make. The store
// finds candidates by their words, and the scorer ranks them.
const (
	largeBytes     = 4 << 20 // of entries with their earlier versions
	maxWords       = 32      // of a query that the store looks for
	fewCandidates  = 40
	manyCandidates = 200
)

// errLarge means that a base is searched in the store.
var errLarge = errors.New("the base is searched in the store")

// large reports whether a base is searched in the store.
func (s *Service) large(state record.State) bool {
	return !s.cfg.Sealed && state.Bytes > largeBytes
}

// Terms is the record.Terms of entries: the stems of their texts, their tags and their document.
func Terms(at record.Space, body []byte) []string {
	if !strings.HasPrefix(at.Name, entrySpaces) {
		return nil
	}
	e, err := read(&record.Record{Body: body})
	if err != nil {
		return nil // it cannot be searched in memory either
	}
	out := recall.IndexTerms(e.searched())
	for _, tag := range e.Tags {
		out = append(out, tagTerm(tag))
	}
	if e.Source != nil {
		out = append(out, documentTerm(e.Source.Document))
	}
	return out
}

// Words have no such characters in front.
func tagTerm(tag string) string       { return "#" + tag }
func documentTerm(name string) string { return "@" + name }

// findInStore is Search for a large base.
func (s *Service) findInStore(ctx context.Context, b *Base, q Query) ([]Hit, string, error) {
	want := record.Find{Limit: min(max(8*q.K, fewCandidates), manyCandidates)}
	terms := recall.QueryTerms(q.Text, maxWords)
	for _, t := range terms {
		want.Words = append(want.Words, t)
	}
	for _, tag := range q.Tags {
		want.All = append(want.All, tagTerm(tag))
	}
	if q.Document != "" {
		want.All = append(want.All, documentTerm(q.Document))
	}
	found, err := s.cfg.Store.FindRecords(ctx, b.space(), want)
	if err != nil {
		return nil, "", err
	}
	of := recall.Corpus{Texts: int(found.Count), With: map[string]int{}}
	for i, t := range terms {
		of.With[t[0]] = found.With[i]
	}
	entries := make([]Entry, len(found.Records))
	for i := range found.Records {
		e, err := read(&found.Records[i])
		if err != nil {
			return nil, "", err
		}
		entries[i] = e.Entry
	}
	byID, index := sample(entries, of)
	hits, strength := index.Search(recall.Query{Text: q.Text, K: q.K, Now: s.cfg.Now()})
	out := []Hit{}
	for _, h := range hits {
		out = append(out, Hit{*byID[h.ID], h.Score})
	}
	return out, strength, nil
}

// sample indexes some entries of a base. Pieces of a document are neighbors if none is missing
// between them.
func sample(entries []Entry, of recall.Corpus) (map[string]*Entry, *recall.Index) {
	slices.SortFunc(entries, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(documentOf(&a), documentOf(&b)), cmp.Compare(partOf(&a), partOf(&b)))
	})
	byID, index := map[string]*Entry{}, recall.NewSample(of)
	run := 0
	for i := range entries {
		e := &entries[i]
		if i == 0 || partOf(e) == 0 || documentOf(e) != documentOf(&entries[i-1]) || partOf(e) != partOf(&entries[i-1])+1 {
			run++
		}
		byID[e.ID] = e
		index.Put(recall.Turn{Call: strconv.Itoa(run), Seq: int64(partOf(e)), ID: e.ID, Text: e.searched(), Complete: true})
	}
	return byID, index
}

// documentOf returns the document that an entry is a piece of, or "".
func documentOf(e *Entry) string {
	if partOf(e) == 0 {
		return ""
	}
	return e.Source.Document
}

// partOf returns the entry's place in its document, 0 for others than pieces.
func partOf(e *Entry) int {
	if e.Source == nil {
		return 0
	}
	return e.Source.Part
}
