// Command fakellm is an OpenAI-compatible LLM that knows one answer: an upstream to try Heardlog
// with.
//
//	go run ./examples/fakellm -addr 127.0.0.1:9099
//
// It answers POST /v1/chat/completions (streamed or whole) and GET /v1/models, shows what it was
// asked at GET /requests and which calls were cancelled at GET /cancels. How it answers can be
// scripted by flags, by request headers (X-Fake-Answer, X-Fake-Delay-First, …) and by a member
// "fake" of the request body; package fake lists them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/heardlog/heardlog/examples/fakellm/fake"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "fakellm:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	var o fake.Options
	flags := flag.NewFlagSet("fakellm", flag.ContinueOnError)
	addr := flags.String("addr", "127.0.0.1:9099", "address to listen on; port 0 takes any")
	flags.StringVar(&o.Script.Answer, "answer", "", "what to answer; empty: something that fits the question")
	flags.DurationVar((*time.Duration)(&o.Script.DelayFirst), "delay-first", 0, "wait before the first word")
	flags.DurationVar((*time.Duration)(&o.Script.DelayChunk), "delay-chunk", 0, "wait between words")
	flags.IntVar(&o.Script.Status, "status", 0, "answer every call with this HTTP status")
	flags.IntVar(&o.Script.CutAfter, "cut-after", 0, "break the connection after so many words")
	flags.BoolVar(&o.Script.Hang, "hang", false, "take calls and never answer")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return err
	}
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", *addr)
	if err != nil {
		return err
	}
	srv := &http.Server{Handler: fake.New(o), ReadHeaderTimeout: 10 * time.Second}
	fmt.Fprintf(os.Stderr, "fakellm listens on http://%s/v1\n", ln.Addr())
	context.AfterFunc(ctx, func() { _ = srv.Close() })
	if err := srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
