package responses

import (
	"strconv"
	"strings"
)

// Ref is the place of an answer in the ledger. The IDs of a response and of its items hold it.
type Ref struct {
	Agent string
	Seq   int64
}

// ID returns the ID of the response.
func (r Ref) ID() string { return r.id("resp") }

func (r Ref) id(prefix string) string {
	return prefix + "_" + r.Agent + "_" + strconv.FormatInt(r.Seq, 10)
}

// call returns the ID of the item of tool call n.
func (r Ref) call(n int) string { return r.id("fc") + "_" + strconv.Itoa(n) }

// Unstored returns the agent of a response that went on without the store, and whether the ID is of
// one. It has no place.
func Unstored(id string) (agent string, ok bool) {
	rest, ok := strings.CutPrefix(id, "resp_")
	agent, number := cutLast(rest)
	return agent, ok && number == "0" && agent != ""
}

// ParseRef returns the place that the ID of a response or of an item holds.
func ParseRef(id string) (Ref, bool) {
	prefix, rest, _ := strings.Cut(id, "_")
	if prefix == "fc" {
		rest, _ = cutLast(rest)
	}
	agent, number := cutLast(rest)
	seq, err := strconv.ParseInt(number, 10, 64)
	ref := Ref{agent, seq}
	if err != nil || seq < 1 || agent == "" {
		return Ref{}, false
	}
	switch prefix {
	case "resp", "msg", "rs", "fc", "fco":
		return ref, true
	}
	return Ref{}, false
}

// cutLast cuts s around its last underscore.
func cutLast(s string) (before, after string) {
	i := strings.LastIndexByte(s, '_')
	if i < 0 {
		return "", s
	}
	return s[:i], s[i+1:]
}
