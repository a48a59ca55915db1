package receive

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"
)

// Run is the program: it serves until ctx is done or, with -once, until that many events came. The
// first line on stdout is the URL to give to Heardlog. Settings are flags, or the environment's
// RECEIVER_ADDR, RECEIVER_SECRET, RECEIVER_AGORA, RECEIVER_ONCE and RECEIVER_FAIL.
func Run(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) error {
	c := Config{Out: stdout}
	flags := flag.NewFlagSet("receiver", flag.ContinueOnError)
	flags.SetOutput(stderr)
	addr := flags.String("addr", orElse(getenv("RECEIVER_ADDR"), "127.0.0.1:9090"), "`host:port` to listen on; port 0 is any (RECEIVER_ADDR)")
	secret := flags.String("secret", "", "the endpoint's signing secret; without one nothing is verified (RECEIVER_SECRET)")
	flags.BoolVar(&c.Agora, "agora", getenv("RECEIVER_AGORA") == "true", "Agora calls this URL itself: take its signature where there is no other (RECEIVER_AGORA=true)")
	flags.IntVar(&c.Once, "once", number(getenv("RECEIVER_ONCE")), "exit after `N` different events; 0 is never (RECEIVER_ONCE)")
	flags.IntVar(&c.Fail, "fail", number(getenv("RECEIVER_FAIL")), "answer 500 to the first `K` requests, to see retries (RECEIVER_FAIL)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unknown argument %q; see -h", flags.Arg(0))
	}
	// Not the flag's default: -h would print it.
	if raw := orElse(*secret, getenv("RECEIVER_SECRET")); raw != "" {
		c.Secret = raw
	}
	r, err := New(c)
	if err != nil {
		return err
	}
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", *addr)
	if err != nil {
		return err
	}
	return serve(ctx, ln, r, stdout)
}

func serve(ctx context.Context, ln net.Listener, r *Receiver, stdout io.Writer) error {
	fmt.Fprintf(stdout, "http://%s\n", ln.Addr())
	srv := &http.Server{Handler: r, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 30 * time.Second, WriteTimeout: 30 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(ln) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	case <-r.Done():
	}
	// The last answer must still go out, or the event comes again.
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := srv.Shutdown(stop); err != nil {
		return err
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func orElse(v, def string) string {
	if v == "" {
		return def
	}
	return v
}

// number reads a count; what is none is 0.
func number(v string) int {
	n, err := strconv.Atoi(v)
	if err != nil {
		return 0
	}
	return n
}
