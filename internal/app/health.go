package app

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/heardlog/heardlog/config"
)

// Healthcheck asks the server of these settings, on this machine, whether it is ready. It returns
// an error if it is not.
func Healthcheck(ctx context.Context, getenv func(string) string) error {
	c, err := config.Load(getenv)
	if err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(ctx, 5*time.Second)
	defer stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, LocalURL(c)+"/readyz", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("not ready: status %d", resp.StatusCode)
	}
	return nil
}

// LocalURL returns the base URL of the server of these settings for clients on this machine.
func LocalURL(c config.Config) string {
	host, port, err := net.SplitHostPort(c.Addr)
	if err != nil {
		host, port = c.Addr, "80" // config.Load refuses such an address
	}
	if ip := net.ParseIP(host); host == "" || (ip != nil && ip.IsUnspecified()) {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, port)
}
