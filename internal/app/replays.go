package app

import (
	"context"

	"github.com/heardlog/heardlog/internal/quota"
	"github.com/heardlog/heardlog/internal/turn"
	"github.com/heardlog/heardlog/longterm/replay"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/window/tokens"
)

// newReplays creates what asks requests of past turns again.
func (a *App) newReplays(ctx context.Context) (*replay.Service, error) {
	key, err := a.store.ServerKey(ctx, "replays")
	if err != nil {
		return nil, err
	}
	return replay.New(a.jobs, replay.Config{
		Records: quota.Records{Store: a.store, Keeper: a.quota}, Memory: a.service,
		Ask: func(ctx context.Context, llm memory.LLMSettings, body []byte) (replay.Answer, error) {
			out, err := a.answers.Resend(ctx, turn.Resend{LLM: llm, Body: body})
			return replay.Answer(out), err
		},
		Count: tokens.New(0).For, Prices: a.cfg.LLM.Prices, Now: a.now, NewID: a.ids.next, Key: key,
	}), nil
}
