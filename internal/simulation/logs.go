package simulation

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dlock-go/dlock"
)

// logging has clients of a part of the plans have a logger.
func (g *generator) logging() {
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 73))}
	if !g.often(60) {
		return
	}
	for i := range g.plan.Clients {
		g.plan.Clients[i].Logs = g.often(75)
	}
}

// A logBook is the logger of one client. It keeps what it is told.
type logBook struct {
	reg   *register
	index int
	w     *world
	stuck *hanging // when it does not return; nil: it does

	mu       sync.Mutex
	said     map[aboutHold]time.Time // when a line came first
	renewals []time.Time             // when lines about renewals came
	dropped  []logLine               // what was said of leases that were dropped
	drops    []logged                // leases that were
}

// An aboutHold is a line about one hold.
type aboutHold struct {
	text, name string
	token      uint64
}

type logLine struct {
	at    time.Time
	level slog.Level
	text  string
	attrs map[string]slog.Value
}

// What a logger is told, and at what level.
const (
	lostLine        = "lock lost"
	unconfirmedLine = "release not confirmed"
	droppedLine     = "lease dropped without Unlock, the lock stays held"
	notRenewedLine  = "lock not renewed yet"
	renewedLine     = "lock renewed late"
	termLine        = "term ended"
	shortLine       = "a TTL below 100ms is lost on a busy machine"
)

var levels = map[string]slog.Level{
	lostLine: slog.LevelError, droppedLine: slog.LevelError, unconfirmedLine: slog.LevelWarn,
	notRenewedLine: slog.LevelWarn, renewedLine: slog.LevelWarn, termLine: slog.LevelWarn, shortLine: slog.LevelWarn,
}

// logPause is the time between two lines about renewals.
const logPause = 10 * time.Second

func (b *logBook) Enabled(context.Context, slog.Level) bool { return true }
func (b *logBook) WithAttrs([]slog.Attr) slog.Handler       { return b }
func (b *logBook) WithGroup(string) slog.Handler            { return b }

func (b *logBook) Handle(_ context.Context, rec slog.Record) error {
	line := logLine{time.Now(), rec.Level, strings.TrimPrefix(rec.Message, "dlock: "), make(map[string]slog.Value)}
	rec.Attrs(func(a slog.Attr) bool { line.attrs[a.Key] = a.Value.Resolve(); return true })
	b.mu.Lock()
	defer b.mu.Unlock()
	if why := b.wrong(line); why != "" {
		go b.reg.isLogged(b.index, line, why)
	}
	if before := b.before(line); !before.IsZero() {
		go b.reg.isLoggedAgain(b.index, line, before)
	}
	b.mu.Unlock()
	defer b.mu.Lock()
	b.stick(line.text)
	return nil
}

// wrong says what is wrong with a line, or nothing.
func (b *logBook) wrong(l logLine) string {
	level, known := levels[l.text]
	if l.text == lostLine && l.attrs["dlock.cause"].String() == string(dlock.LossMaxHold) {
		level = slog.LevelWarn // the program has asked for it
	}
	_, fails := l.attrs["error"]
	switch kind := l.attrs["error.type"].String(); {
	case !known || l.level != level:
		return "no line of that level is known"
	case strings.Contains(l.attrs["error"].String(), "\n"):
		return "it is several lines"
	case fails == (l.text == renewedLine || l.text == shortLine || l.text == droppedLine), fails && (kind == "" || l.text == lostLine && kind != "lost" && kind != "broken"):
		return "its error, or the type of that"
	case l.text != shortLine && l.attrs["dlock.lock.name"].String() == "":
		return "it names no lock"
	}
	if l.text == notRenewedLine || l.text == renewedLine {
		all := b.renewals
		b.renewals = append(all, l.at)
		if n := len(all); n > 0 && l.at.Sub(all[n-1]) < logPause {
			return "it comes " + l.at.Sub(all[n-1]).String() + " after the last about renewals"
		}
	}
	return ""
}

// before keeps what is said of a hold, and is when a line came about the hold of which l says the same. Readers of one phase have the same
// token.
func (b *logBook) before(l logLine) (first time.Time) {
	switch l.text {
	case droppedLine:
		b.dropped = append(b.dropped, l)
	case lostLine, unconfirmedLine:
	default:
		return first
	}
	about := aboutHold{l.text, l.attrs["dlock.lock.name"].String(), l.attrs["dlock.token"].Uint64()}
	first, found := b.said[about]
	if !found {
		b.said[about] = l.at
	}
	if l.text == droppedLine || l.attrs["dlock.mode"].String() == "shared" {
		return time.Time{}
	}
	return first
}

func (l logLine) is(name string, token uint64) bool {
	return l.attrs["dlock.lock.name"].String() == name && l.attrs["dlock.token"].Uint64() == token
}

// has reports whether there was a line about a hold.
func (b *logBook) has(text, name string, token uint64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, found := b.said[aboutHold{text, name, token}]
	return found
}

// hasSaidOfRenewals reports whether a line about renewals came at that moment, or too shortly before it for
// another.
func (b *logBook) hasSaidOfRenewals(at time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.ContainsFunc(b.renewals, func(said time.Time) bool { return said.Sub(at) <= late && at.Sub(said) < logPause })
}

// isLoggedAgain checks that the same is said of one hold once. A server that has lost what it knew may give
// its token to another.
func (r *register) isLoggedAgain(client int, l logLine, before time.Time) {
	r.mu.Lock()
	forgot := r.touched(client, before.Add(-lingers), func(t touch) bool { return t.data })
	r.mu.Unlock()
	if !forgot {
		r.isLogged(client, l, "it is said for one hold again")
	}
}

// isLogged notes a line that is wrong. Where goroutines are stopped, a line comes long after it was meant to.
func (r *register) isLogged(client int, l logLine, why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.dead[client] && !r.stuttered(time.Time{}) {
		r.violate("the logger is told what is", "c%d: %s: %v %s %v", client, why, l.level, l.text, l.attrs)
	}
}

// logger is that of a client, nil if it has none.
func (w *world) logger(c *client) *slog.Logger {
	if !w.plan.Clients[c.index].Logs {
		return nil
	}
	c.log = &logBook{reg: w.reg, index: c.index, w: w, stuck: w.plan.Clients[c.index].Stuck, said: make(map[aboutHold]time.Time)}
	return slog.New(c.log)
}

// mustLog notes that the loss of a lease has to be logged.
func (r *register) mustLog(b *belief, err error) {
	if r.w.clients[b.client].log == nil || kindOf(err) != dlock.ErrLost {
		return
	}
	names := make(map[string]uint64)
	for _, name := range r.namesOf(b.lease) {
		local := r.w.plan.localName(b.client, name)
		names[local] = b.lease.TokenOf(local)
	}
	r.unlogged = append(r.unlogged, unlogged{b.client, b.String(), names})
}

// An unlogged loss is one of a lease whose line has not been looked for.
type unlogged struct {
	client int
	what   string
	names  map[string]uint64 // and tokens; of a multi-lock one of them is lost
}

// logsAdd checks that no loss went unlogged, nor a renewal that has failed.
func (w *world) logsAdd() {
	r := w.reg
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, u := range r.unlogged {
		logged := r.dead[u.client]
		for name, token := range u.names {
			logged = logged || w.clients[u.client].log.has(lostLine, name, token)
		}
		if !logged {
			r.violate("the logger is told what is", "c%d: nothing of the loss of %s", u.client, u.what)
		}
	}
	for _, c := range w.clients {
		if c.log == nil || r.dead[c.index] {
			continue
		}
		for _, at := range c.hooks.unrenewed() {
			if k := r.closings[c.index]; (k == nil || at.Before(k.began)) && !r.stuttered(time.Time{}) && !c.log.hasSaidOfRenewals(at) {
				r.violate("the logger is told what is", "c%d: nothing of a renewal that failed %v after the beginning", c.index, at.Sub(r.began))
			}
		}
	}
}

// unrenewed is when hooks were told of renewals that had failed.
func (l *listener) unrenewed() []time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.failures)
}

// mustWarn checks that a release which the server has not confirmed was logged before its Unlock returned,
// where that has ended the hold.
func (r *register) mustWarn(c *call, all []*belief, op *Op, err error) {
	b := all[0]
	log := r.w.clients[c.client].log
	var e *dlock.Error
	if log == nil || op.Early || !errors.As(err, &e) || len(all) > 1 || b.multi || b.parent != nil || b.shared || len(op.Inside) > 0 || len(op.AtOnce) > 0 || b.limited || !b.least.IsZero() {
		return
	}
	switch e.Kind {
	case dlock.ErrLost, dlock.ErrUnlocked, dlock.ErrClosed:
		return
	}
	if !log.has(unconfirmedLine, r.w.plan.localName(c.client, b.name), b.token) {
		r.violate("the logger is told what is", "c%d: nothing of the release of %v: %v", c.client, b, err)
	}
}
