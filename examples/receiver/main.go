// Command receiver is a small webhook receiver: it verifies what Heardlog sends and prints it.
//
//	go run ./examples/receiver -addr 127.0.0.1:9090 -secret whsec_…
//
// Package receive beside it is the part to copy into your own server.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/heardlog/heardlog/examples/receiver/receive"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := receive.Run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "receiver:", err)
		os.Exit(1)
	}
}
