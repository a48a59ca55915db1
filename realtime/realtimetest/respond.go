package realtimetest

import (
	"context"
	"encoding/base64"
	"maps"
	"strings"
	"time"
)

// Speak plays a caller who speaks over whatever is going on, as the server's detection of turns
// reports it: the answer that is being made is cancelled.
func (c *Conn) Speak() {
	c.SpeechStarted()
	c.Send(map[string]any{"type": "input_audio_buffer.speech_stopped", "audio_end_ms": 900, "item_id": "x"})
	c.Commit()
}

// SpeechStarted reports that the caller has begun to speak.
func (c *Conn) SpeechStarted() {
	c.Send(map[string]any{"type": "input_audio_buffer.speech_started", "audio_start_ms": 100, "item_id": "x"})
	c.stop()
	c.running.Wait()
}

// Commit takes what is in the input buffer as an item of the caller's. Its transcript comes later.
func (c *Conn) Commit() {
	c.s.mu.Lock()
	n := c.s.heard
	c.s.heard++
	c.s.mu.Unlock()
	it := Item{ID: c.s.id("item"), Type: "message", Role: "user", Audio: true}
	previous, _ := c.insert(it, "")
	c.mu.Lock()
	c.appended = 0
	c.mu.Unlock()
	c.Send(map[string]any{"type": "input_audio_buffer.committed", "previous_item_id": previous, "item_id": it.ID})
	c.added(it, previous, map[string]any{"type": "message", "role": "user", "content": []any{map[string]any{"type": "input_audio", "transcript": nil}}})
	words := c.s.cfg.Hear(n)
	if words == "-" { // no transcription
		return
	}
	send := func() {
		if words == "" {
			c.Send(map[string]any{"type": "conversation.item.input_audio_transcription.failed", "item_id": it.ID, "content_index": 0, "error": map[string]any{"message": "no"}})
			return
		}
		c.mu.Lock()
		if at := c.find(it.ID); at >= 0 {
			c.items[at].Text = words
		}
		c.mu.Unlock()
		c.Send(map[string]any{
			"type": "conversation.item.input_audio_transcription.completed", "item_id": it.ID, "content_index": 0, "transcript": words,
			"usage": map[string]any{"type": "duration", "seconds": 1},
		})
	}
	if c.s.cfg.Late == nil {
		send()
		return
	}
	go func() { <-c.s.cfg.Late; send() }()
}

// Respond makes an answer, beside what else is going on.
func (c *Conn) Respond(create map[string]any) {
	c.running.Add(1)
	ctx, cancel := context.WithCancel(context.Background())
	if create["conversation"] != "none" {
		c.mu.Lock()
		c.cancel = cancel
		c.mu.Unlock()
	}
	go func() {
		defer c.running.Done()
		defer cancel()
		c.respond(ctx, create)
	}()
}

// bytesPerMS returns how many bytes of audio a millisecond has.
func (c *Conn) bytesPerMS() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	format := c.session["output_audio_format"]
	if audio, ok := c.session["audio"].(map[string]any); ok {
		if out, ok := audio["output"].(map[string]any); ok {
			if f, ok := out["format"].(map[string]any); ok {
				format = f["type"]
			}
		}
	}
	switch format {
	case "audio/pcmu", "audio/pcma", "g711_ulaw", "g711_alaw":
		return 8
	}
	return 48
}

func (c *Conn) respond(ctx context.Context, create map[string]any) {
	reply := c.s.cfg.Answer(c.Items(), create)
	id, aside := c.s.id("resp"), create["conversation"] == "none"
	var conversation any = "conv_1"
	if aside {
		conversation = nil
	}
	object := map[string]any{"object": "realtime.response", "id": id, "status": "in_progress", "status_details": nil, "output": []any{}, "conversation_id": conversation, "usage": nil, "metadata": create["metadata"]}
	c.Send(map[string]any{"type": "response.created", "response": object})
	c.Send(map[string]any{"type": "rate_limits.updated", "rate_limits": []any{map[string]any{"name": "tokens", "limit": 40000, "remaining": 39000, "reset_seconds": 1.5}}})
	status, output := "completed", []any{}
	var details any
	if reply.Fails != "" {
		status, details = "failed", map[string]any{"type": "failed", "error": map[string]any{"type": "server_error", "code": "server_error", "message": reply.Fails}}
	}
	if len(reply.Words) > 0 || reply.Text != "" {
		item, done := c.say(ctx, id, aside, &reply)
		output = append(output, item)
		if !done {
			status, details = "cancelled", map[string]any{"type": "cancelled", "reason": "turn_detected"}
		}
	}
	if reply.Call != "" && status == "completed" {
		output = append(output, c.call(id, aside, len(output), &reply))
	}
	usage := map[string]any{
		"total_tokens": 130, "input_tokens": 100, "output_tokens": 30,
		"input_token_details":  map[string]any{"text_tokens": 60, "audio_tokens": 40, "cached_tokens": 20},
		"output_token_details": map[string]any{"text_tokens": 10, "audio_tokens": 20},
	}
	final := maps.Clone(object)
	final["status"], final["status_details"], final["output"], final["usage"] = status, details, output, usage
	c.Send(map[string]any{"type": "response.done", "response": final})
}

// say sends the item with an answer's words.
func (c *Conn) say(ctx context.Context, resp string, aside bool, reply *Reply) (object map[string]any, done bool) {
	it := Item{ID: c.s.id("item"), Type: "message", Role: "assistant", Audio: len(reply.Words) > 0}
	kind, part := "response.output_audio_transcript", "output_audio"
	if !it.Audio {
		kind, part = "response.output_text", "output_text"
	}
	if c.beta {
		part = strings.TrimPrefix(part, "output_")
	}
	object = map[string]any{"id": it.ID, "object": "realtime.item", "type": "message", "status": "in_progress", "role": "assistant", "content": []any{}}
	c.Send(map[string]any{"type": "response.output_item.added", "response_id": resp, "output_index": 0, "item": object})
	if !aside {
		previous, _ := c.insert(it, "")
		c.Send(map[string]any{"type": "conversation.item.added", "previous_item_id": previous, "item": object})
	}
	at := map[string]any{"response_id": resp, "item_id": it.ID, "output_index": 0, "content_index": 0}
	send := func(kind string, more map[string]any) {
		e := maps.Clone(at)
		maps.Copy(e, more)
		e["type"] = kind
		c.Send(e)
	}
	send("response.content_part.added", map[string]any{"part": map[string]any{"type": part}})
	words := reply.Words
	if !it.Audio {
		for w := range strings.FieldsSeq(reply.Text) {
			words = append(words, Word{Text: w})
		}
	}
	text, rate, done := "", c.bytesPerMS(), true
	for i := range len(words) + reply.Ahead {
		if reply.Hold != nil && i < len(words) {
			select {
			case <-reply.Hold:
			case <-ctx.Done():
			}
		}
		if ctx.Err() != nil {
			done = false
			break
		}
		if reply.CloseAfter > 0 && i == reply.CloseAfter {
			c.Break()
			return object, false
		}
		if i < len(words) {
			piece := words[i].Text
			if i > 0 {
				piece = " " + piece
			}
			text += piece
			send(kind+".delta", map[string]any{"delta": piece})
		}
		if j := i - reply.Ahead; it.Audio && j >= 0 && j < len(words) {
			it.AudioMS += words[j].MS
			send("response.output_audio.delta", map[string]any{"delta": base64.StdEncoding.EncodeToString(make([]byte, words[j].MS*rate))})
		}
		c.mu.Lock()
		if n := c.find(it.ID); n >= 0 {
			c.items[n].Text, c.items[n].AudioMS = text, it.AudioMS
		}
		c.mu.Unlock()
	}
	status := "completed"
	if !done {
		status = "incomplete"
	}
	said := map[string]any{"type": part, "transcript": text}
	if it.Audio {
		send("response.output_audio.done", nil)
		send(kind+".done", map[string]any{"transcript": text})
	} else {
		said = map[string]any{"type": part, "text": text}
		send(kind+".done", map[string]any{"text": text})
	}
	send("response.content_part.done", map[string]any{"part": said})
	object = merged(object, map[string]any{"status": status, "content": []any{said}})
	c.Send(map[string]any{"type": "response.output_item.done", "response_id": resp, "output_index": 0, "item": object})
	if !aside && !c.beta {
		c.Send(map[string]any{"type": "conversation.item.done", "item": object})
	}
	return object, done
}

// call sends an item with the call of a function.
func (c *Conn) call(resp string, aside bool, index int, reply *Reply) map[string]any {
	it := Item{ID: c.s.id("item"), Type: "function_call", CallID: c.s.id("call"), Name: reply.Call, Args: reply.Arguments}
	object := map[string]any{"id": it.ID, "object": "realtime.item", "type": "function_call", "status": "in_progress", "call_id": it.CallID, "name": it.Name, "arguments": ""}
	c.Send(map[string]any{"type": "response.output_item.added", "response_id": resp, "output_index": index, "item": object})
	if !aside {
		previous, _ := c.insert(it, "")
		c.Send(map[string]any{"type": "conversation.item.added", "previous_item_id": previous, "item": object})
	}
	at := map[string]any{"response_id": resp, "item_id": it.ID, "output_index": index, "call_id": it.CallID}
	d := merged(at, map[string]any{"type": "response.function_call_arguments.delta", "delta": it.Args})
	c.Send(d)
	c.Send(merged(at, map[string]any{"type": "response.function_call_arguments.done", "arguments": it.Args, "name": it.Name}))
	object = merged(object, map[string]any{"status": "completed", "arguments": it.Args})
	c.Send(map[string]any{"type": "response.output_item.done", "response_id": resp, "output_index": index, "item": object})
	if !aside && !c.beta {
		c.Send(map[string]any{"type": "conversation.item.done", "item": object})
	}
	return object
}

// Paced returns the words of a text as a voice of four syllables a second would say them.
func Paced(text string) (out []Word) {
	for w := range strings.FieldsSeq(text) {
		out = append(out, Word{w, int64(len(w))*60 + 120})
	}
	return out
}

// Wait waits until ok, which it asks again and again, or the time is over.
func Wait(limit time.Duration, ok func() bool) bool {
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if ok() {
			return true
		}
	}
	return ok()
}
