package integration

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/caddyserver/certmagic"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/contrib/certmagiclock"
)

const wildcard = "*.example.com"

// unlocked is a storage whose own locks exclude nobody.
type unlocked struct{ *certmagic.FileStorage }

func (unlocked) Lock(context.Context, string) error            { return nil }
func (unlocked) Unlock(context.Context, string) error          { return nil }
func (unlocked) TryLock(context.Context, string) (bool, error) { return true, nil }

// newConfig returns CertMagic as on a machine of its own.
func newConfig(t testing.TB, a *authority, s certmagic.Storage, log *zap.Logger, obtaining func(context.Context) error) *certmagic.Config {
	var config *certmagic.Config
	cache := certmagic.NewCache(certmagic.CacheOptions{
		GetConfigForCert: func(certmagic.Certificate) (*certmagic.Config, error) { return config, nil },
		Logger:           log,
	})
	t.Cleanup(cache.Stop)
	config = certmagic.New(cache, certmagic.Config{
		Storage: s,
		Logger:  log,
		OnEvent: func(ctx context.Context, event string, _ map[string]any) error {
			if event == "cert_obtaining" {
				return obtaining(ctx)
			}
			return nil
		},
	})
	config.Issuers = []certmagic.Issuer{certmagic.NewACMEIssuer(config, certmagic.ACMEIssuer{
		CA: a.url, TestCA: a.url, TrustedRoots: a.roots, Email: "locks@example.com", Agreed: true,
		DisableHTTPChallenge: true, DisableTLSALPNChallenge: true, DNS01Solver: solver{}, Logger: log,
	})}
	return config
}

// obtainAll has n machines get one certificate at once, and counts who asks for it.
func obtainAll(t testing.TB, a *authority, n int, storage func() certmagic.Storage, obtaining func(context.Context) error) (machines []*certmagic.Config, asked int32) {
	var all sync.WaitGroup
	var asking atomic.Int32
	for range n {
		config := newConfig(t, a, storage(), zap.NewNop(), func(ctx context.Context) error {
			asking.Add(1)
			return obtaining(ctx)
		})
		machines = append(machines, config)
		all.Go(func() {
			if err := config.ObtainCertSync(t.Context(), wildcard); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	return machines, asking.Load()
}

// Machines that get one certificate at once ask the authority once.
func TestCertMagicAsksTheAuthorityOnce(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, p *place) {
		a := startAuthority(t)
		shared := unlocked{&certmagic.FileStorage{Path: t.TempDir()}}
		storage := func() certmagic.Storage { return certmagiclock.New(shared, p.client(t)) }
		machines, asked := obtainAll(t, a, 4, storage, func(context.Context) error { return nil })
		if asked != 1 || a.orders.Load() != 1 || a.accounts.Load() != 1 {
			t.Errorf("%d machines asked for it, with %d orders and %d accounts, want one of each",
				asked, a.orders.Load(), a.accounts.Load())
		}
		for _, machine := range machines {
			_, err := machine.CacheManagedCertificate(t.Context(), wildcard)
			must(t, err)
		}
	})
}

// Without locks each would: what the test above counts is what there is to count.
func TestCertMagicWithoutLocks(t *testing.T) {
	t.Parallel()
	a := startAuthority(t)
	shared := unlocked{&certmagic.FileStorage{Path: t.TempDir()}}
	const n = 4
	var together sync.WaitGroup
	together.Add(n)
	_, asked := obtainAll(t, a, n, func() certmagic.Storage { return shared }, func(context.Context) error {
		together.Done()
		together.Wait()
		return nil
	})
	if asked != n || a.orders.Load() != n {
		t.Errorf("%d machines asked for it, with %d orders, want %d of each", asked, a.orders.Load(), n)
	}
}

// A machine that loses its lock while it gets a certificate says so when it unlocks, and
// leaves the lock to whoever has it now.
func TestCertMagicThatLosesItsLock(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, p *place) {
		const name = "issue_cert_" + wildcard
		shared := unlocked{&certmagic.FileStorage{Path: t.TempDir()}}
		client, other := p.client(t), certmagiclock.New(shared, p.client(t))
		core, logged := observer.New(zap.ErrorLevel)
		config := newConfig(t, startAuthority(t), certmagiclock.New(shared, client), zap.New(core), func(ctx context.Context) error {
			p.takeAway(t, name)
			return other.Lock(ctx, name)
		})
		must(t, config.ObtainCertSync(t.Context(), wildcard))
		if ok, err := certmagiclock.New(shared, client).TryLock(t.Context(), name); ok || err != nil {
			t.Errorf("the lock is not the other's any more: %v, %v", ok, err)
		}
		must(t, other.Unlock(t.Context(), name))
		lines := logged.FilterMessage("unable to unlock").All()
		if len(lines) != 1 {
			t.Fatalf("%d lines say that Unlock failed: %v", len(lines), logged.All())
		}
		for _, field := range lines[0].Context {
			if err, ok := field.Interface.(error); ok && errors.Is(err, dlock.ErrLost) {
				return
			}
		}
		t.Errorf("no dlock.ErrLost in %v", lines[0].Context)
	})
}

// Without the lock server no certificate is asked for.
func TestCertMagicWithoutTheServer(t *testing.T) {
	t.Parallel()
	redis, p := startRedis(t)
	a := startAuthority(t)
	storage := certmagiclock.New(unlocked{&certmagic.FileStorage{Path: t.TempDir()}}, p.client(t))
	config := newConfig(t, a, storage, zap.NewNop(), func(context.Context) error { return nil })
	must(t, redis.Stop())
	if err := config.ObtainCertSync(t.Context(), wildcard); err == nil || a.orders.Load() != 0 {
		t.Errorf("%d orders, error %v", a.orders.Load(), err)
	}
	must(t, redis.Restart(false))
	must(t, config.ObtainCertSync(t.Context(), wildcard))
}
