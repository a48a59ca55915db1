package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

// mayBeSkipped are the reasons for which a test may be skipped in every run of CI. Each is the
// beginning of what the test is skipped with, and why that is not a gap.
var mayBeSkipped = map[string]string{
	"not a request at all":        "a seed of a fuzz test, which is an input that the HTTP client refuses to send",
	"mounting a small disk needs": "a container without CAP_SYS_ADMIN; the limit on file sizes beside it tests the same",
}

// result is a test that ran or was skipped, as a line of the file in RUNTESTS_RECORD.
type result struct {
	Package string `json:"package"`
	Test    string `json:"test"`
	Skipped string `json:"skipped,omitempty"` // why; "" if it ran
}

// record appends the results to a file.
func (r *report) record(file string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	enc := json.NewEncoder(w)
	for _, one := range r.results {
		err = errors.Join(err, enc.Encode(one))
	}
	return errors.Join(err, w.Flush(), f.Close())
}

// checkRecord fails if a test was skipped in each run of which the file has results, unless it may
// be.
func checkRecord(file string, out io.Writer) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	ran, skipped := map[name]bool{}, map[name]string{}
	dec := json.NewDecoder(bufio.NewReader(f))
	for {
		var one result
		switch err := dec.Decode(&one); {
		case errors.Is(err, io.EOF):
			return judge(ran, skipped, out)
		case err != nil:
			return err
		case one.Skipped == "":
			ran[name{one.Package, one.Test}] = true
		default:
			skipped[name{one.Package, one.Test}] = one.Skipped
		}
	}
}

func judge(ran map[name]bool, skipped map[name]string, out io.Writer) error {
	maps.DeleteFunc(skipped, func(n name, why string) bool {
		for allowed := range mayBeSkipped {
			if strings.HasPrefix(why, allowed) {
				return true
			}
		}
		return ran[n]
	})
	fmt.Fprintf(out, "%d tests ran\n", len(ran))
	if len(ran) == 0 {
		return errors.New("no test ran")
	}
	if len(skipped) == 0 {
		return nil
	}
	for _, n := range slices.SortedFunc(maps.Keys(skipped), func(a, b name) int { return strings.Compare(a.Package+" "+a.Test, b.Package+" "+b.Test) }) {
		fmt.Fprintf(out, "skipped in every run: %s %s: %s\n", n.Package, n.Test, skipped[n])
	}
	return fmt.Errorf("%d tests were skipped in every run", len(skipped))
}
