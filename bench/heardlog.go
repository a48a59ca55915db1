package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
)

// agoraBase is the prefix of the paths that Agora's clients use, as a chi pattern; the project is
// the appid in it.
const (
	agoraBase = "/api/conversational-ai-agent/v2/projects/{appid}"
	// The project of /v1 on a server without credentials.
	agoraPath = "/api/conversational-ai-agent/v2/projects/default"
)

const sentence = "I would like to move my appointment from Tuesday morning to some time on Thursday, if you still have anything free after lunch."

// joinBody returns the body of a join: a text agent that answers with the LLM at url.
func joinBody(name, url string, maxHistory int) []byte {
	llm := map[string]any{}
	if maxHistory > 0 {
		llm["max_history"] = maxHistory
	}
	if url != "" {
		llm["url"] = url
	}
	body, err := json.Marshal(map[string]any{
		"name": name, "properties": map[string]any{"idle_timeout": 0, "llm": llm},
	})
	if err != nil {
		panic(err) // strings and numbers always encode
	}
	return body
}

// messagesBody returns a batch of n messages, user and assistant in turn.
func messagesBody(n int) []byte {
	type message struct {
		Role     string            `json:"role"`
		Content  string            `json:"content"`
		Source   string            `json:"source"`
		Metadata map[string]string `json:"metadata,omitempty"`
	}
	var list []message
	for i := range n {
		if i%2 == 0 {
			list = append(list, message{"user", sentence, "asr", map[string]string{"publisher": "1001"}})
		} else {
			list = append(list, message{"assistant", sentence, "llm", nil})
		}
	}
	body, err := json.Marshal(map[string]any{"messages": list})
	if err != nil {
		panic(err)
	}
	return body
}

// population is a number of agents with the same messages.
type population struct {
	ids []string
}

// populate makes agents through the API, up to 16 at a time. batch is the first append to each; nil
// for none.
func populate(ctx context.Context, addr, name string, agents int, batch []byte, maxHistory int, url string) (population, error) {
	p := population{ids: make([]string, agents)}
	var next atomic.Int64
	errs := make(chan error, 16)
	var wg sync.WaitGroup
	for range min(16, agents) {
		wg.Go(func() {
			c, err := dial(ctx, addr)
			if err != nil {
				errs <- err
				return
			}
			defer c.Close()
			for {
				i := int(next.Add(1)) - 1
				if i >= agents || ctx.Err() != nil {
					return
				}
				if p.ids[i], err = populateOne(c, addr, fmt.Sprintf("%s-%d", name, i), maxHistory, url, batch); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	wg.Wait()
	select {
	case err := <-errs:
		return p, fmt.Errorf("make agents: %w", err)
	default:
		return p, ctx.Err()
	}
}

func populateOne(c *conn, addr, name string, maxHistory int, url string, batch []byte) (string, error) {
	id, err := joined(c, request("POST", "/v1/join", addr, joinBody(name, url, maxHistory), ""))
	if err != nil || batch == nil {
		return id, err
	}
	return id, wantOK(c, request("POST", "/v1/agents/"+id+"/messages", addr, batch, ""))
}
