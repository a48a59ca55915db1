package window

// Code is a kind of problem with the tool calls of a list.
type Code string

// The codes. Only MissingResults can be repaired.
const (
	EmptyCallID        Code = "empty_call_id"
	DuplicateCallID    Code = "duplicate_call_id"
	MissingResults     Code = "missing_results"
	NonAdjacentResults Code = "non_adjacent_results"
	EmptyResultID      Code = "empty_result_id"
	DuplicateResultID  Code = "duplicate_result_id"
	UnknownResultID    Code = "unknown_result_id"
	OrphanResult       Code = "orphan_result"
)

// Problem is one fault of a list.
type Problem struct {
	Code       Code
	Index      int      // the message at fault
	IDs        []string // the calls or results concerned
	Repairable bool
}

// Repaired is what Repair found and what mends it.
type Repaired struct {
	Problems []Problem
	// Insert are the stand-ins for missing results. After inserting them, Repair finds no more
	// missing ones.
	Insert []Insertion
}

// Repair checks all calls and results of a list, also calls that may still be running. It changes
// nothing.
//
//   - A result's ID is unknown if no earlier message made the call, but some earlier message calls
//     tools. If none does, the result is an orphan.
//   - Results are not adjacent if something other than results is between the call and them.
func Repair(list []Message) Repaired {
	var out Repaired
	add := func(code Code, i int, ids ...string) {
		out.Problems = append(out.Problems, Problem{code, i, ids, code == MissingResults})
	}
	made, answered := map[string]int{}, map[string]bool{}
	s := accepted(list, Extras{})
	f := findings(s)
	run := -1 // place in s of the message with calls that the following results belong to
	for k, e := range s {
		if !e.links {
			run = -1
			continue
		}
		l := e.m.links()
		for _, id := range l.Results {
			from, known := made[id]
			switch {
			case id == "":
				add(EmptyResultID, int(e.at))
			case !known && len(made) == 0:
				add(OrphanResult, int(e.at), id)
			case !known:
				add(UnknownResultID, int(e.at), id)
			case answered[id]:
				add(DuplicateResultID, int(e.at), id)
			case from != run:
				answered[id] = true
				add(NonAdjacentResults, int(e.at), id)
			default:
				answered[id] = true
			}
		}
		if !e.m.isResult() {
			run = -1
		}
		if len(l.Calls) == 0 {
			continue
		}
		run = k
		for _, id := range l.Calls {
			if id == "" {
				add(EmptyCallID, int(e.at))
				continue
			}
			if _, again := made[id]; again {
				add(DuplicateCallID, int(e.at), id)
				continue
			}
			made[id] = k
		}
		if at, lost := f.lostOf(s, k, true); len(lost) > 0 {
			ids := standIns(lost)
			add(MissingResults, int(e.at), ids...)
			in := Insertion{After: int(s[at-1].at)}
			for _, l := range lost {
				in.Messages = append(in.Messages, *l.m)
			}
			out.Insert = append(out.Insert, in)
		}
	}
	return out
}
