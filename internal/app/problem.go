package app

import (
	"github.com/rs/zerolog"

	"github.com/heardlog/heardlog/internal/fault"
)

// problem logs what went wrong outside of calls. A cause that has a log line of its own, such as a
// database that is away, is repeated at level debug only.
func (a *App) problem(what string, err error) {
	level := zerolog.ErrorLevel
	if fault.Reported(err) {
		level = zerolog.DebugLevel
	}
	a.log.WithLevel(level).Err(err).Msg(what)
}
