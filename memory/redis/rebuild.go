package redis

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/redis/rueidis"

	"github.com/heardlog/heardlog/internal/fault"
)

// A server that drops keys when its memory is full may drop a part of what finds agents, and keep the agents. That shows in numbers that do not fit any more: each entry stands among the agents or the
// claims, each agent under its status, each ended one by its end. What finds names and keys alone has no such number; it is written with the rest.

// wholeScript tells whether the numbers of a project fit.
var wholeScript = rueidis.NewLuaScript(`
local all, sum = redis.call('ZCARD', KEYS[6]), 0
for i = 13, #KEYS do sum = sum + redis.call('ZCARD', KEYS[i]) end
local ended = redis.call('ZCARD', KEYS[17]) + redis.call('ZCARD', KEYS[19])
if redis.call('HLEN', KEYS[1]) == all + redis.call('ZCARD', KEYS[5]) and all == sum and ended == redis.call('ZCARD', KEYS[7]) then return 1 end
return 0`)

// rebuild writes what finds the agents of a project anew where a part of it is lost. It looks through all keys of the prefix, and takes as long as it takes: each of its steps is a call.
func (s *Store) rebuild(ctx context.Context, project string) error {
	fit, what := int64(0), "look whether all is found"
	err := s.read(ctx, what, func(ctx context.Context) (err error) {
		fit, err = s.eval(ctx, wholeScript, s.projectKeys(project)).AsInt64()
		return err
	})
	if err != nil || fit == 1 {
		return err
	}
	s.notice("a part of what finds the agents of project " + project + " is lost, as happens where Redis drops keys when its memory is full; it is written anew")
	ids := map[string]bool{}
	err = s.scan(ctx, enc(project)+"/*", "}"+agentSuffix[kHead], func(tag string) error {
		_, id, _ := strings.Cut(tag, "/")
		ids[dec(id)] = true
		return nil
	})
	if err != nil {
		return err
	}
	err = s.read(ctx, what, func(ctx context.Context) error {
		entries, err := s.client.Do(ctx, s.client.B().Hkeys().Key(s.projectKey(project, kInfo)).Build()).AsStrSlice()
		for _, id := range entries {
			ids[id] = true
		}
		return err
	})
	for _, id := range slices.Sorted(maps.Keys(ids)) { // ids are made of times, so that this is about the order in which they were made
		if err != nil {
			return err
		}
		err = s.call(ctx, "write anew what finds an agent", func(ctx context.Context) error { return s.rewrite(ctx, key{project, id}) })
	}
	return err
}

// rewrite puts an agent into all its places, whether it is there or not.
func (s *Store) rewrite(ctx context.Context, k key) error {
	for try := range maxTries {
		text, err := s.entry(ctx, k)
		if err != nil {
			return err
		}
		var i info
		if text != "" {
			if i, err = decodeInfo(text); err != nil {
				return err
			}
		}
		v, err := s.current(ctx, k)
		gone := fault.Is(err, fault.NotFound)
		switch {
		case unreadable(err): // nobody knows where it belongs, which is no reason not to write the others
			return nil
		case err != nil && !gone:
			return err
		case gone && text == "":
			return nil
		case gone && i.Pending == 0:
			return s.release(ctx, k, text)
		case !gone:
			no, check := i.no, i.CheckMS
			if i = infoOf(v.claim, &v.head.Agent); text == "" {
				if no, err = s.nextNo(ctx, k.project); err != nil {
					return err
				}
				check = s.checkMS(&v.head.Agent)
			}
			i.no, i.CheckMS = no, check
		}
		done, err := s.place(ctx, k, text, map[spot]string{}, &i)
		if err != nil {
			return err
		}
		if done {
			if !gone && !i.Status.Ended() {
				return s.announce(ctx, k) // servers that have not heard of it have to look after it
			}
			return nil
		}
		pause(ctx, try)
	}
	return nil // it changes all the time, and is written each time
}
