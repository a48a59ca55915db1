package redis

import (
	"context"
	"strconv"

	"github.com/redis/rueidis"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
)

// Saved conversations are in the slot of their project: a hash of bodies and a zset of ids. They have no end of their own.

var (
	// saveScript stores a conversation: 1 id, 2 body, 3 limit.
	saveScript = rueidis.NewLuaScript(`
local limit = tonumber(ARGV[3])
if limit > 0 and redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 and redis.call('ZCARD', KEYS[2]) >= limit then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('ZADD', KEYS[2], 0, ARGV[1])
return 1`)

	forgetScript = rueidis.NewLuaScript(`
redis.call('HDEL', KEYS[1], ARGV[1])
redis.call('ZREM', KEYS[2], ARGV[1])
return 1`)

	clearScript = rueidis.NewLuaScript(`
local n = redis.call('ZCARD', KEYS[2])
redis.call('UNLINK', KEYS[1], KEYS[2])
return n`)
)

func (s *Store) conversationKeys(project string) []string {
	tag := s.projectTag(project)
	return []string{tag + ":conv", tag + ":convs"}
}

// SaveConversation stores a conversation.
func (s *Store) SaveConversation(ctx context.Context, project, id string, body []byte, limit int) error {
	return s.call(ctx, "save conversation", func(ctx context.Context) error {
		sealed := string(s.sealer.Seal(body, conversationOwner(project, id)))
		n, err := s.eval(ctx, saveScript, s.conversationKeys(project), id, sealed, strconv.Itoa(limit)).AsInt64()
		if err == nil && n == 0 {
			err = memory.TooManyConversations(limit)
		}
		return err
	})
}

// LoadConversation gives a conversation.
func (s *Store) LoadConversation(ctx context.Context, project, id string) (body []byte, err error) {
	err = s.read(ctx, "read conversation", func(ctx context.Context) error {
		sealed, err := s.client.Do(ctx, s.client.B().Hget().Key(s.conversationKeys(project)[0]).Field(id).Build()).AsBytes()
		if rueidis.IsRedisNil(err) {
			return fault.New(fault.NotFound, "there is no conversation %q", id)
		}
		if err != nil {
			return err
		}
		body, err = s.sealer.Open(sealed, conversationOwner(project, id))
		return err
	})
	return body, err
}

// DeleteConversation takes a conversation away.
func (s *Store) DeleteConversation(ctx context.Context, project, id string) error {
	return s.call(ctx, "delete conversation", func(ctx context.Context) error {
		return s.eval(ctx, forgetScript, s.conversationKeys(project), id).Error()
	})
}

// ListConversations lists a project's ids. Redis sorts them by bytes, which in UTF-8 is by code point.
func (s *Store) ListConversations(ctx context.Context, project, after string, limit int) (ids []string, total int, err error) {
	err = s.read(ctx, "list conversations", func(ctx context.Context) error {
		at, from := s.conversationKeys(project)[1], "-"
		if after != "" {
			from = "(" + after
		}
		answers := s.client.DoMulti(ctx, s.client.B().Zcard().Key(at).Build(), s.client.B().Zrangebylex().Key(at).Min(from).Max("+").Limit(0, int64(max(limit, 1))).Build())
		n, err := answers[0].AsInt64()
		if err != nil {
			return err
		}
		total = int(n)
		ids, err = answers[1].AsStrSlice()
		return err
	})
	return ids, total, err
}

// ClearConversations takes all of a project's conversations away; the server frees their memory behind.
func (s *Store) ClearConversations(ctx context.Context, project string) (n int, err error) {
	err = s.call(ctx, "clear conversations", func(ctx context.Context) error {
		gone, err := s.eval(ctx, clearScript, s.conversationKeys(project)).AsInt64()
		n = int(gone)
		return err
	})
	return n, err
}
