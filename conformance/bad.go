package conformance

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

// canary is a password that must show nowhere.
const canary = "c4n4ry-s3cret"

func badNames(s *scenario) {
	p := s.open()
	before := s.ops()
	for _, name := range []string{"", strings.Repeat("x", 1025)} {
		for _, l := range []dlock.Locker{p.Mutex(name), p.RWMutex(name), p.RWMutex(name).RLocker(), p.Multi([]string{s.name, name})} {
			_, err := l.Lock(s.ctx)
			s.is(err, dlock.ErrInvalidName)
			_, err = l.TryLock(s.ctx)
			s.is(err, dlock.ErrInvalidName)
		}
	}
	_, err := p.Multi(nil).Lock(s.ctx)
	s.is(err, dlock.ErrInvalidName)
	s.must(s.ops() == before, "%d requests for bad names", s.ops()-before)
	s.free(p.Mutex(s.name))
	s.free(p.Mutex(strings.Repeat("x", 1024-len(s.name)) + s.name))
}

func badTTL(s *scenario) {
	p := s.open()
	before := s.ops()
	below := s.BelowMinTTL
	if below == 0 {
		below = backend.MinTTL - 1
	}
	for _, ttl := range []time.Duration{-time.Second, 0, 1, below, 24*time.Hour + 1, 1<<63 - 1} {
		_, err := p.Mutex(s.name, dlock.WithTTL(ttl)).Lock(s.ctx)
		s.is(err, dlock.ErrInvalidTTL)
	}
	for _, o := range []dlock.Option{
		dlock.WithMaxHold(0), dlock.WithMaxHold(-1), dlock.WithMinHold(0), dlock.WithMinHold(-1),
		dlock.WithMaxWait(0), dlock.WithMaxWait(-1), dlock.WithMaxHold(1), dlock.WithMinHold(24*time.Hour + 1),
	} {
		_, err := p.Mutex(s.name, o).TryLock(s.ctx)
		s.is(err, dlock.ErrInvalidTTL)
	}
	for _, ttl := range []time.Duration{-time.Second, below, 24*time.Hour + 1} {
		_, err := dlock.New(p.Backend, &dlock.Options{TTL: ttl})
		s.is(err, dlock.ErrInvalidTTL)
		_, err = dlock.Open(s.ctx, s.Scheme+"://"+cmp.Or(s.Hosts, "h"), &dlock.Options{TTL: ttl}) // where no server is
		s.is(err, dlock.ErrInvalidTTL)
	}
	s.must(s.ops() == before, "%d requests for bad TTLs", s.ops()-before)
	s.free(p.Mutex(s.name))
}

// badOptions checks that every problem is reported at once.
func badOptions(s *scenario) {
	p := s.open()
	_, err := p.Mutex("", dlock.WithTTL(-time.Second), dlock.WithMaxWait(-time.Minute)).Lock(s.ctx)
	s.is(err, dlock.ErrInvalidName, dlock.ErrInvalidTTL)
	for _, want := range []string{"-1s", "-1m0s"} {
		s.must(strings.Contains(err.Error(), want), "%q does not name %s", err, want)
	}
	cfg := dlock.Config{URL: dlock.NewSecret(s.Scheme + "://h?dlock.ttl=soon&dlock.prefix=p"), TTL: dlock.Duration(-1), Prefix: "q"}
	err = cfg.Validate()
	for _, want := range []error{dlock.ErrInvalidConfig, dlock.ErrInvalidTTL} {
		s.must(errors.Is(err, want), "%v is not %v", err, want)
	}
	for _, want := range []string{"dlock.ttl", "dlock.prefix"} {
		s.must(strings.Contains(err.Error(), want), "%q does not name %s", err, want)
	}
}

func badZeroValues(s *scenario) {
	var m *dlock.Mutex
	var c *dlock.Client
	for _, l := range []dlock.Locker{
		m, &dlock.Mutex{}, &dlock.RWMutex{}, (&dlock.RWMutex{}).RLocker(), &dlock.Multi{}, (*dlock.Multi)(nil),
		c.Mutex(s.name), c.RWMutex(s.name), new(dlock.Client).Mutex(s.name), c.Multi([]string{s.name}),
	} {
		_, err := l.Lock(s.ctx)
		s.is(err, dlock.ErrInvalidConfig)
		_, err = l.TryLock(s.ctx)
		s.is(err, dlock.ErrInvalidConfig)
	}
	_, held := m.Held(s.ctx)
	s.must(!held && m.Name() == "", "a nil mutex is held")
	f := func(context.Context, *dlock.Lease) error { return nil }
	l := s.open().Mutex(s.name)
	for _, do := range []func(context.Context, dlock.Locker, func(context.Context, *dlock.Lease) error) error{dlock.Do, dlock.TryDo, dlock.Lead} {
		s.is(do(s.ctx, nil, f), dlock.ErrInvalidConfig)
		s.is(do(s.ctx, l, nil), dlock.ErrInvalidConfig)
	}
	s.free(l)
	_, err := dlock.New(nil, nil)
	s.is(err, dlock.ErrInvalidConfig)
}

func badNilContext(s *scenario) {
	var none context.Context
	p := s.open()
	_, err := p.Mutex(s.name).Lock(none)
	s.is(err, dlock.ErrInvalidConfig)
	_, err = p.Multi([]string{s.name}).TryLock(none)
	s.is(err, dlock.ErrInvalidConfig)
	_, held := p.Mutex(s.name).Held(none)
	s.must(!held, "held in no context")
	_, err = dlock.Open(none, s.Scheme+"://", nil)
	s.is(err, dlock.ErrInvalidConfig)
	s.is(dlock.Lead(none, p.Mutex(s.name), nil), dlock.ErrInvalidConfig)
	lease := s.locked(p.Mutex(s.name))
	s.must(lease.Context(none) != nil, "no context")
	s.is(lease.Downgrade(none), dlock.ErrInvalidConfig)
	s.ok(lease.Unlock(none))
	s.is(p.Close(none), dlock.ErrInvalidConfig)
}

func badURL(s *scenario) {
	hosts := s.Scheme + "://" + cmp.Or(s.Hosts, "h")
	for url, want := range map[string]string{
		"":                                   "scheme",
		"nonsense":                           "scheme",
		"://host":                            "scheme",
		"nosuch://host":                      s.Scheme, // lists the known ones
		hosts + "?dlock.nosuch=1":            "dlock.nosuch",
		hosts + "?dlock.ttl=soon":            "dlock.ttl",
		hosts + "?ttl=1s":                    "dlock.ttl?",
		hosts + "?dlock.ttl=1s&dlock.ttl=2s": "dlock.ttl",
		s.Scheme + "://[::1":                 "host",
		s.Scheme + "://h:99999999":           "port",
		s.Scheme + "://h1:1,,h2:2":           "host",
		s.Scheme + "://h/%zz":                "percent",
	} {
		_, err := dlock.Open(s.ctx, url, nil)
		if err == nil {
			s.Errorf("%q was opened", url)
			continue
		}
		s.is(err, dlock.ErrInvalidConfig)
		s.must(strings.Contains(err.Error(), want), "for %q the error does not say %q: %v", url, want, err)
	}
	_, err := dlock.Open(s.ctx, s.Scheme+"://?dlock.prefix=a", &dlock.Options{Prefix: "b"})
	s.is(err, dlock.ErrInvalidConfig)
}

func badCredentials(s *scenario) {
	if s.unable(s.BadLogin == "", "BadLogin") {
		return
	}
	_, err := dlock.Open(s.ctx, s.BadLogin, nil)
	s.is(err, dlock.ErrAuth)
	s.not(err, dlock.ErrHeld)
}

func badUnreachable(s *scenario) {
	if s.unable(s.Nowhere == "", "Nowhere") {
		return
	}
	_, err := dlock.Open(s.ctx, s.Nowhere, nil)
	s.is(err, dlock.ErrUnavailable)
	s.not(err, dlock.ErrHeld, dlock.ErrAuth)
	u, parsed := backend.ParseURL(s.Nowhere)
	s.ok(parsed)
	s.must(strings.Contains(err.Error(), u.HostPorts("0")[0]), "it is not said which server was asked: %v", err)
}

func badForeignState(s *scenario) {
	if s.unable(s.Foreign == nil, "Foreign") {
		return
	}
	p := s.open()
	untouched := s.Foreign(s.TB, s.name)
	_, err := p.Mutex(s.name).TryLock(s.ctx)
	s.is(err, dlock.ErrConflict)
	_, err = p.Mutex(s.name).Lock(s.ctx)
	s.is(err, dlock.ErrConflict)
	s.not(err, dlock.ErrHeld)
	s.ok(untouched())
}

// badNoSecrets opens URLs with a password in every way that fails or works,
// and looks for it in everything that is printed.
func badNoSecrets(s *scenario) {
	var mu sync.Mutex
	var out bytes.Buffer
	note := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(&out, format+"\n", args...)
	}
	opts := &dlock.Options{Logger: slog.New(slog.NewTextHandler(&lockedWriter{&mu, &out}, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	ctx, cancel := context.WithTimeout(s.ctx, 5*time.Second)
	defer cancel()
	for _, url := range []string{
		s.Scheme + "://user:" + canary + "@127.0.0.1:1/",
		s.Scheme + "://user:" + canary + "@127.0.0.1:1/?nosuch=1",
		s.Scheme + "://user:" + canary + "@[::1/",
		s.Scheme + "://user:" + canary + "/@127.0.0.1:1",
		s.Scheme + "://user:" + canary + "?@127.0.0.1:1",
		s.Scheme + "://user:" + canary + "#@127.0.0.1:1",
		s.Scheme + "://user:%zz" + canary + "@127.0.0.1:1",
		s.Scheme + "://127.0.0.1:1/?password=" + canary,
		"nosuch://user:" + canary + "@host",
		"user:" + canary + "@host",
	} {
		c, err := dlock.Open(ctx, url, opts)
		note("%v %+v %#v %q", err, err, err, fmt.Sprint(err))
		cfg := dlock.Config{URL: dlock.NewSecret(url)}
		note("%v %+v %#v %s %v", cfg, cfg, cfg, cfg, cfg.Validate())
		note("%v", &cfg)
		if err == nil {
			note("%v %+v", c, c.Mutex("x"))
			_ = c.Close(ctx)
		}
	}
	if s.BadLogin != "" {
		c, err := dlock.Open(ctx, strings.Replace(s.BadLogin, "wrong", canary, 1), opts)
		note("%v %v %+v", c, err, err)
	}
	mu.Lock()
	defer mu.Unlock()
	if i := bytes.Index(out.Bytes(), []byte(canary)); i >= 0 {
		s.Errorf("the password shows: ...%s", out.Bytes()[max(0, i-200):i])
	}
}

type lockedWriter struct {
	mu *sync.Mutex
	w  *bytes.Buffer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// optionalInterfaces compares what the backend implements with what its
// harness says.
func optionalInterfaces(s *scenario) {
	b := s.open().Backend
	var has []string
	for name, typ := range map[string]reflect.Type{
		"BatchReleaser": reflect.TypeFor[backend.BatchReleaser](),
		"Breaker":       reflect.TypeFor[backend.Breaker](),
		"Downgrader":    reflect.TypeFor[backend.Downgrader](),
		"Expirer":       reflect.TypeFor[backend.Expirer](),
		"Inspector":     reflect.TypeFor[backend.Inspector](),
		"MinTTLer":      reflect.TypeFor[backend.MinTTLer](),
		"Pinger":        reflect.TypeFor[backend.Pinger](),
		"Reenterer":     reflect.TypeFor[backend.Reenterer](),
		"Renewer":       reflect.TypeFor[backend.Renewer](),
		"TokenRegister": reflect.TypeFor[backend.TokenRegister](),
		"Transferer":    reflect.TypeFor[backend.Transferer](),
	} {
		if reflect.TypeOf(b).Implements(typ) {
			has = append(has, name)
		}
	}
	slices.Sort(has)
	s.must(slices.Equal(has, s.Optional), "%T implements %v, the harness says %v", b, has, s.Optional)
}

// unsupportedSaysSo uses what the harness says is missing.
func unsupportedSaysSo(s *scenario) {
	p := s.open()
	if _, lacks := s.Lacks[Readers]; lacks {
		_, err := p.RWMutex(s.name).RLock(s.ctx)
		s.is(err, dlock.ErrUnsupported)
	}
	if _, lacks := s.Lacks[Downgrade]; lacks {
		lease := s.locked(p.Mutex(s.name))
		s.is(lease.Downgrade(s.ctx), dlock.ErrUnsupported)
		s.unlock(lease)
	}
}
