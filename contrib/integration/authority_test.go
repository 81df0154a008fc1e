package integration

import (
	"context"
	"crypto/x509"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/letsencrypt/pebble/v2/ca"
	"github.com/letsencrypt/pebble/v2/db"
	"github.com/letsencrypt/pebble/v2/va"
	"github.com/letsencrypt/pebble/v2/wfe"
	"github.com/mholt/acmez/v3/acme"
)

// An authority is a Pebble, the ACME server that Let's Encrypt has for tests. It counts
// what it is asked for.
type authority struct {
	url              string
	roots            *x509.CertPool
	accounts, orders atomic.Int32
}

func startAuthority(t testing.TB) *authority {
	quiet := log.New(io.Discard, "", 0)
	store := db.NewMemoryStore()
	profiles := map[string]ca.Profile{"default": {Description: "the only one"}}
	front := wfe.New(quiet, store, va.New(quiet, 0, 0, false, "", store),
		ca.New(quiet, store, "", "ecdsa", 0, 1, profiles), []string{"localhost"}, false, false, 0, 0)
	handler := front.Handler()
	a := &authority{roots: x509.NewCertPool()}
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasPrefix(r.URL.Path, "/sign-me-up"):
			a.accounts.Add(1)
		case strings.HasPrefix(r.URL.Path, "/order-plz"):
			a.orders.Add(1)
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	a.url = s.URL + wfe.DirectoryPath
	a.roots.AddCert(s.Certificate())
	return a
}

// A solver has nothing to solve: the authority believes every challenge.
type solver struct{}

func (solver) Present(context.Context, acme.Challenge) error { return nil }
func (solver) CleanUp(context.Context, acme.Challenge) error { return nil }
