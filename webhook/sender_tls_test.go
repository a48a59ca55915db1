package webhook_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/heardlog/heardlog/webhook"
)

func TestSendTLS(t *testing.T) {
	t.Parallel()
	good := certificate(t, time.Now().Add(time.Hour))
	expired := certificate(t, time.Now().Add(-time.Hour))
	trusted := func(c tls.Certificate) *x509.CertPool {
		leaf, err := x509.ParseCertificate(c.Certificate[0])
		if err != nil {
			t.Fatal(err)
		}
		pool := x509.NewCertPool()
		pool.AddCert(leaf)
		return pool
	}
	for _, tt := range []struct {
		name        string
		server      *tls.Config // nil = plain HTTP
		trust       *x509.CertPool
		host        string
		class, text string
	}{
		{"right", &tls.Config{Certificates: []tls.Certificate{good}}, trusted(good), "hook.test", "", ""},
		{"expired", &tls.Config{Certificates: []tls.Certificate{expired}}, trusted(expired), "hook.test", webhook.ClassTLS, "expired"},
		{"other host", &tls.Config{Certificates: []tls.Certificate{good}}, trusted(good), "other.test", webhook.ClassTLS, "another host"},
		{"self-signed", &tls.Config{Certificates: []tls.Certificate{good}}, x509.NewCertPool(), "hook.test", webhook.ClassTLS, "by itself"},
		{"unknown authority", &tls.Config{Certificates: []tls.Certificate{good}}, trusted(expired), "hook.test", webhook.ClassTLS, "unknown authority"},
		{"TLS 1.1 at most", &tls.Config{Certificates: []tls.Certificate{good}, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}, trusted(good), "hook.test", webhook.ClassTLS, ""},
		{"client certificate demanded", &tls.Config{Certificates: []tls.Certificate{good}, ClientAuth: tls.RequireAnyClientCert}, trusted(good), "hook.test", webhook.ClassTLS, "certificate required"},
		{"the same by TLS 1.2", &tls.Config{Certificates: []tls.Certificate{good}, ClientAuth: tls.RequireAnyClientCert, MaxVersion: tls.VersionTLS12}, trusted(good), "hook.test", webhook.ClassTLS, ""},
		{"no TLS at all", nil, trusted(good), "hook.test", webhook.ClassTLS, "does not speak TLS"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			srv := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			srv.Config.ErrorLog = log.New(io.Discard, "", 0)
			if srv.TLS = tt.server; tt.server != nil {
				srv.Listener = tls.NewListener(srv.Listener, tt.server)
			}
			srv.Start()
			t.Cleanup(srv.Close)
			s := newSender(t, func(c *webhook.SenderConfig) {
				c.TLS = &tls.Config{RootCAs: tt.trust}
				c.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
					return new(net.Dialer).DialContext(ctx, network, srv.Listener.Addr().String())
				}
			})
			o := s.Send(t.Context(), delivery("https://"+tt.host))
			wantClass(t, o, tt.class, tt.text)
		})
	}
}

// certificate returns a self-signed certificate for hook.test that expires at the given time.
func certificate(t *testing.T, notAfter time.Time) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: serial, DNSNames: []string{"hook.test"}, NotBefore: notAfter.Add(-24 * time.Hour), NotAfter: notAfter,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}
