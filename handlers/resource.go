package handlers

import (
	"net/http"

	"github.com/heardlog/heardlog/internal/budget"
	"github.com/heardlog/heardlog/internal/text"
)

// Most calls read their body, call a service and answer with what it returned. Their handlers are
// functions that return the answer; the functions below make handlers of them.

// shows is for calls without a body. It answers 200 with what f returns, as JSON.
func shows(f func(r *http.Request) (any, error)) handlerFunc {
	return func(w http.ResponseWriter, r *http.Request) error {
		out, err := f(r)
		if err != nil {
			return err
		}
		return encode(w, http.StatusOK, out)
	}
}

// reads is for calls that may read a whole ledger: what they take of the budget is given back once
// they have answered.
func reads(f handlerFunc) handlerFunc {
	return func(w http.ResponseWriter, r *http.Request) error {
		ctx, done := budget.Hold(r.Context())
		defer done()
		return f(w, r.WithContext(ctx))
	}
}

// gone is for calls that answer 204.
func gone(f func(r *http.Request) error) handlerFunc {
	return func(w http.ResponseWriter, r *http.Request) error {
		return noContent(w, f(r))
	}
}

// takes is shows for calls with a JSON body, which is decoded and checked.
func takes[In any](b bodies, f func(r *http.Request, in *In) (any, error)) handlerFunc {
	return func(w http.ResponseWriter, r *http.Request) error {
		in, err := decode[In](b, w, r, true)
		if err != nil {
			return err
		}
		return shows(func(r *http.Request) (any, error) { return f(r, &in) })(w, r)
	}
}

// mayTake is takes for calls whose body may be missing.
func mayTake[In any](b bodies, f func(r *http.Request, in *In) (any, error)) handlerFunc {
	return func(w http.ResponseWriter, r *http.Request) error {
		var in In
		if err := b.decodeOptional(w, r, &in); err != nil {
			return err
		}
		return shows(func(r *http.Request) (any, error) { return f(r, &in) })(w, r)
	}
}

// shown returns a function that takes the result of a service and returns its wire type.
func shown[T, J any](wire func(*T) J) func(T, error) (any, error) {
	return func(v T, err error) (any, error) {
		if err != nil {
			return nil, err
		}
		return wire(&v), nil
	}
}

// each returns the wire types of a list; an empty list for none.
func each[T, J any](list []T, wire func(*T) J) []J {
	out := make([]J, len(list))
	for i := range list {
		out[i] = wire(&list[i])
	}
	return out
}

// The sizes of the pages of most lists.
const (
	defaultPageSize = 100
	maxPageSize     = 1000
)

// pageOf returns the parameters of a list: it begins after the entry with the name after, which is
// at most maxName bytes long.
func pageOf(r *http.Request, maxLimit, maxName int) (after string, limit int, err error) {
	query := r.URL.Query()
	if after = query.Get("cursor"); after != "" {
		if err := text.ValidName("cursor", after, maxName); err != nil {
			return "", 0, err
		}
	}
	limit, err = intParam(query, "limit", defaultPageSize, 1, maxLimit)
	return after, limit, err
}

// cutPage returns the first limit elements of a list, and the cursor of the next page: that of the
// last of them, or "" if there are no more.
func cutPage[T any](list []T, limit int, cursor func(T) string) ([]T, string) {
	if len(list) <= limit {
		return list, ""
	}
	return list[:limit], cursor(list[limit-1])
}
