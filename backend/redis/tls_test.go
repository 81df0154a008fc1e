package redis

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/dlock-go/dlock"
)

// TestTLS reaches the server through a tunnel that ends the encryption, and
// only if its certificate is trusted.
func TestTLS(t *testing.T) {
	t.Parallel()
	certified := httptest.NewUnstartedServer(nil)
	certified.StartTLS()
	defer certified.Close()
	ln := must[net.Listener](t)(tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: certified.TLS.Certificates}))
	tunnel(t, ln, shared.Addr())
	roots := x509.NewCertPool()
	roots.AddCert(certified.Certificate())

	url := "rediss://" + ln.Addr().String()
	a := openURL(t, url, &dlock.Options{TLS: &tls.Config{RootCAs: roots}})
	b := openURL(t, url, &dlock.Options{TLS: &tls.Config{RootCAs: roots}})
	lease := must[*dlock.Lease](t)(a.Mutex(t.Name()).Lock(within(t)))
	got := make(chan error, 1)
	go func() {
		next, err := b.Mutex(t.Name()).Lock(within(t))
		if err == nil {
			err = next.Unlock(within(t))
		}
		got <- err
	}()
	<-lease.Wanted()
	must[any](t)(nil, lease.Unlock(within(t)))
	must[any](t)(nil, <-got)

	for url, o := range map[string]*dlock.Options{
		url: {TLS: &tls.Config{}},
		"redis://" + ln.Addr().String() + "?read_timeout=1s": nil,
	} {
		c, err := dlock.Open(within(t), url, o)
		if err == nil {
			_ = c.Close(context.Background())
		}
		if !errors.Is(err, dlock.ErrUnavailable) {
			t.Errorf("%s: %v", url, err)
		}
	}
}

// tunnel carries what comes in at ln to target, until the test ends.
func tunnel(t testing.TB, ln net.Listener, target string) {
	var all sync.WaitGroup
	t.Cleanup(func() { _ = ln.Close(); all.Wait() })
	all.Go(func() {
		for {
			in, err := ln.Accept()
			if err != nil {
				return
			}
			all.Go(func() { join(in, target) })
		}
	})
}

func join(in net.Conn, target string) {
	defer in.Close()
	out, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer out.Close()
	go func() { _, _ = io.Copy(out, in); _ = out.Close() }()
	_, _ = io.Copy(in, out)
}
