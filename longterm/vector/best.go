package vector

import (
	"cmp"
	"container/heap"
	"slices"
	"sync"
)

// scored is a document with its score.
type scored struct {
	entry *entry
	score float64
}

// before is the order of results: the best first, equal ones in the order of their insertion.
func (a scored) before(b scored) int {
	return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.entry.at, b.entry.at), cmp.Compare(a.entry.id, b.entry.id))
}

// worst is a heap of the best documents so far, the worst of them on top.
type worst []scored

func (h worst) Len() int           { return len(h) }
func (h worst) Less(i, j int) bool { return h[i].before(h[j]) > 0 }
func (h worst) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *worst) Push(v any)        { *h = append(*h, v.(scored)) }
func (h *worst) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

// twoAtOnce is from how many slots on two goroutines share a search.
const twoAtOnce = 4096

// best returns the n best documents of those that keep accepts; nil accepts all.
func (x *index) best(n int, keep func(*entry) bool, score func(*entry) float64) []scored {
	search := func(docs []entry) worst {
		h := make(worst, 0, min(n, len(docs)))
		for i := range docs {
			e := &docs[i]
			if e.id == "" || keep != nil && !keep(e) {
				continue
			}
			s := scored{e, score(e)}
			switch {
			case len(h) < n:
				heap.Push(&h, s)
			case s.score >= h[0].score && s.before(h[0]) < 0:
				h[0] = s
				heap.Fix(&h, 0)
			}
		}
		return h
	}
	var found worst
	if len(x.docs) < twoAtOnce {
		found = search(x.docs)
	} else {
		var other worst
		var wait sync.WaitGroup
		half := len(x.docs) / 2
		wait.Go(func() { other = search(x.docs[half:]) })
		found = search(x.docs[:half])
		wait.Wait()
		found = append(found, other...)
	}
	slices.SortFunc(found, scored.before)
	return found[:min(n, len(found))]
}
