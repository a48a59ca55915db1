package app

import (
	"io"
	"os"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/term"

	"github.com/heardlog/heardlog/config"
)

// Logger returns the server's logger. It writes JSON lines, or a form for people if the setting
// says so or w is a terminal.
func Logger(c config.Config, w io.Writer) zerolog.Logger {
	console := c.LogFormat == "console"
	if f, ok := w.(*os.File); ok && c.LogFormat == "auto" {
		console = term.IsTerminal(int(f.Fd()))
	}
	if console {
		w = zerolog.ConsoleWriter{Out: w, TimeFormat: time.TimeOnly}
	}
	level, err := zerolog.ParseLevel(c.LogLevel)
	if err != nil {
		level = zerolog.InfoLevel
	}
	return zerolog.New(w).Level(level).With().Timestamp().Logger()
}
