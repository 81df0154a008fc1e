package redis

import (
	"context"
	"crypto/tls"
	"errors"
	"testing"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/server"
)

// TestTLS reaches the server through a tunnel that ends the encryption, and
// only if its certificate is trusted.
func TestTLS(t *testing.T) {
	t.Parallel()
	certified := server.NewCertified()
	addr := certified.Tunnel(t, shared.Addr())
	url := "rediss://" + addr
	a := openURL(t, url, &dlock.Options{TLS: &tls.Config{RootCAs: certified.Roots}})
	b := openURL(t, url, &dlock.Options{TLS: &tls.Config{RootCAs: certified.Roots}})
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
		url:                                    {TLS: &tls.Config{}},
		"redis://" + addr + "?read_timeout=1s": nil,
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
