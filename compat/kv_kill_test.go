package compat_test

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
)

// kvClient stores keys until the server is gone, and notes what was acknowledged. Each round, a
// call may have been stored whose answer never came.
type kvClient struct {
	name string
	sets int      // keys name-0, name-1, … are stored
	ends []string // of these, as expire has answered
	adds int      // increments that were acknowledged
	sent int      // increments that were sent
	once int      // increments with an Idempotency-Key that were sent
}

var expiresAt = regexp.MustCompile(`"expires_at":"[^"]+"`)

// call makes a call to the server and reports whether it was acknowledged, and with what.
func (c *kvClient) call(base, method, path, body string, headers ...string) (string, bool) {
	return tried(base, method, "/v1/kv/"+path, body, headers...)
}

// tried makes a call to a server that may be gone. It returns the answer and reports whether the
// call succeeded.
func tried(base, method, path, body string, headers ...string) (string, bool) {
	r, err := http.NewRequest(method, base+path, strings.NewReader(body))
	if err != nil {
		return "", false
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", false
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	return string(b), err == nil && answer.StatusCode/100 == 2
}

// run stores until a call fails: each time a key, its end, a batch of two, and two increments.
func (c *kvClient) run(base string) {
	for {
		c.ends = c.ends[:c.sets] // a set takes the end away
		if _, ok := c.call(base, "PUT", fmt.Sprintf("set/%s-%d", c.name, c.sets), fmt.Sprintf(`{"value":%d}`, c.sets)); !ok {
			return
		}
		answer, ok := c.call(base, "POST", fmt.Sprintf("set/%s-%d/expire", c.name, c.sets), `{"ttl_seconds":100000}`)
		if !ok {
			return
		}
		c.ends = append(c.ends, expiresAt.FindString(answer))
		if _, ok := c.call(base, "POST", "batch/batch/set", fmt.Sprintf(`{"entries":[{"key":"%[1]s-%[2]d","value":%[2]d},{"key":"%[1]s-%[2]d+","value":%[2]d}]}`, c.name, c.sets)); !ok {
			return
		}
		c.sets++
		c.sent++
		if _, ok := c.call(base, "POST", "sum/"+c.name+"/increment", `{}`); !ok {
			return
		}
		c.adds++
		c.once++
		if _, ok := c.addOnce(base); !ok {
			return
		}
	}
}

// addOnce makes the last increment with an Idempotency-Key, or repeats it.
func (c *kvClient) addOnce(base string) (string, bool) {
	return c.call(base, "POST", "once/"+c.name+"/increment", `{}`, "Idempotency-Key", fmt.Sprint("call-", c.once))
}

// TestKillKeys kills the server repeatedly during set, expire, batch/set and increment. Nothing
// acknowledged is lost, no batch is there in part, and no sum is wrong. A repeated increment with
// an Idempotency-Key counts once, whether the first one was stored or not.
func TestKillKeys(t *testing.T) {
	t.Parallel()
	onBothStores(t, killKeys)
}

func killKeys(t *testing.T, store string) {
	env := []string{store, "HEARDLOG_SECRET_KEY=a key that is long enough"}
	var clients []*kvClient
	for i := range 6 {
		clients = append(clients, &kvClient{name: fmt.Sprint("c", i)})
	}
	for range 8 {
		s := start(t, env...)
		before := clients[0].sets
		var wg sync.WaitGroup
		for _, c := range clients {
			wg.Go(func() { c.run(s.url) })
		}
		for clients[0].reached(s.url, before+20) != nil {
		}
		s.kill()
		wg.Wait()
		s = start(t, env...)
		for _, c := range clients {
			c.check(t, s.url)
		}
		s.kill()
	}
}

// reached returns an error until a key was stored.
func (c *kvClient) reached(base string, n int) error {
	if _, ok := c.call(base, "GET", fmt.Sprintf("set/%s-%d", c.name, n), ""); !ok {
		return fmt.Errorf("not yet")
	}
	return nil
}

func (c *kvClient) check(t *testing.T, base string) {
	t.Helper()
	for i := range c.ends {
		if got, _ := c.call(base, "GET", fmt.Sprintf("set/%s-%d", c.name, i), ""); c.ends[i] == "" || expiresAt.FindString(got) != c.ends[i] {
			t.Errorf("%s-%d ends at %s: %s", c.name, i, c.ends[i], got)
		}
	}
	for i := range c.sets {
		for _, path := range []string{fmt.Sprintf("set/%s-%d", c.name, i), fmt.Sprintf("batch/%s-%d", c.name, i), fmt.Sprintf("batch/%s-%d+", c.name, i)} {
			if got, ok := c.call(base, "GET", path, ""); !ok || !strings.Contains(got, fmt.Sprintf(`"value":%d}`, i)) {
				t.Errorf("%s is lost: %s", path, got)
			}
		}
	}
	_, first := c.call(base, "GET", fmt.Sprintf("batch/%s-%d", c.name, c.sets), "")
	_, second := c.call(base, "GET", fmt.Sprintf("batch/%s-%d+", c.name, c.sets), "")
	if first != second {
		t.Errorf("a batch of %s is there in part", c.name)
	}
	if c.once > 0 {
		if got, ok := c.addOnce(base); !ok || !strings.Contains(got, fmt.Sprintf(`"value":%d}`, c.once)) {
			t.Errorf("the sum of %s, with the last increment repeated, is %s, want %d", c.name, got, c.once)
		}
	}
	if c.sent == 0 {
		return
	}
	got, _ := c.call(base, "GET", "sum/"+c.name, "")
	acked, sent := strings.Contains(got, fmt.Sprintf(`"value":%d}`, c.adds)), strings.Contains(got, fmt.Sprintf(`"value":%d}`, c.sent))
	if !acked && !sent {
		t.Errorf("the sum of %s is %s; %d were acknowledged, %d sent", c.name, got, c.adds, c.sent)
	}
	if sent {
		c.adds = c.sent
	} else {
		c.sent = c.adds
	}
}
