package simulation

import (
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dlock-go/dlock"
)

// A closing is a call of Close, with what its client had as that began.
type closing struct {
	began time.Time
	ended time.Time
	alive map[string]bool // locks of which a lease was alive, or an Unlock under way
	named map[string]bool // locks that the client has had to do with
	had   time.Duration   // for how long it may take
	keeps time.Duration   // for how long the client then keeps locks itself that were unlocked, or are then
}

// quickly is within what time Close ends where nothing goes wrong, but for the way to the servers.
const quickly = 250 * time.Millisecond

// closes notes that Close begins.
func (r *register) closes(client int) *closing {
	k := &closing{began: time.Now(), alive: make(map[string]bool), named: make(map[string]bool), keeps: r.keepsFor(client)}
	for p := range r.interest {
		if p.client == client {
			k.named[r.w.plan.localName(client, p.name)] = true
		}
	}
	for _, b := range r.beliefs {
		if b.client == client && b.live() && b.least.IsZero() {
			k.alive[b.name] = true
		}
	}
	for c := range r.calls {
		if c.client == client && c.what == "unlock" {
			for _, name := range c.names {
				k.alive[name] = r.rest[party{client, name}].IsZero() && r.minimal[party{client, name}].IsZero()
			}
		}
	}
	return k
}

// unconfirmed is what the error of Close says of locks, and quoted one of their names.
var (
	unconfirmed = regexp.MustCompile(`not confirmed to be free: ((?:"(?:[^"\\]|\\.)*"(?:, )?)+)( and [0-9]+ more)?`)
	quoted      = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)
)

// namesIn are the locks that an error of Close names, and whether there are more.
func namesIn(err error) (names []string, more bool) {
	found := unconfirmed.FindStringSubmatch(err.Error())
	if found == nil {
		return nil, false
	}
	for _, q := range quoted.FindAllString(found[1], -1) {
		if name, err := strconv.Unquote(q); err == nil {
			names = append(names, name)
		}
	}
	return names, found[2] != ""
}

// judgesClose checks what Close promises: it names the locks that the server may still have, is quick
// where nothing goes wrong, and ends the calls that wait.
func (r *register) judgesClose(client int, k *closing, err error) {
	if r.dead[client] {
		return
	}
	if took := time.Since(k.began); took > r.closesWithin(k) && !r.isAstray(client, r.w.names()) && !r.touched(client, k.began.Add(-2*longestTTL(r.w.plan.TTL)-lingers), whatever) && !r.stuttered(k.began) {
		r.violate("Close does what it says", "c%d: it took %v, and nothing is wrong", client, took)
	}
	time.AfterFunc(undoing+10*hookTime, func() { r.waitsNoMore(client, k) })
	if err == nil {
		r.isNamedByClose(client, k, "", false, nil)
		return
	}
	r.confirmsAll(client, k, err)
	var e *dlock.Error
	if !errors.As(err, &e) || error(e) != err || e.Op != "close" {
		r.violate("Close does what it says", "c%d: its error is %#v", client, err)
	}
	names, more := namesIn(err)
	for _, name := range names {
		if !k.named[name] {
			r.violate("Close does what it says", "c%d had nothing to do with %q: %v", client, name, err)
		}
	}
	r.isNamedByClose(client, k, strings.Join(names, "\n"), more, err)
}

// closesWithin is how long a Close takes where nothing goes wrong: renewals under way, the releases, and
// connections of a watch, each some times there and back. Hooks are told of each lease.
func (r *register) closesWithin(k *closing) time.Duration {
	return k.keeps + quickly + 20*r.w.plan.slowest() + time.Duration(10+10*len(k.alive))*hookTime
}

// isNamedByClose checks that Close, whose error names some locks, names each that was alive as it began and is on
// the server after it, or on as many members of a quorum as a hold takes.
func (r *register) isNamedByClose(client int, k *closing, names string, more bool, err error) {
	if more || err != nil && !errors.Is(err, dlock.ErrUnavailable) || !r.w.hasServers() || r.mayComeBack(client, k.began) {
		return
	}
	for name, was := range k.alive {
		local, have := r.w.plan.localName(client, name), 0
		if !was || strings.Contains("\n"+names+"\n", "\n"+local+"\n") {
			continue
		}
		for _, s := range r.w.keepers(name) {
			mine := func(id string) bool { return s.owner(id) == r.w.label(client) && id[len(id)-1] != '!' }
			if slices.ContainsFunc(r.lock(name).last[s.index].asOf(s.clock().UnixMilli()).holders(), mine) {
				have++
			}
		}
		if have >= r.w.plan.need() {
			r.violate("Close does what it says", "c%d: %d servers have %s of it, and it says %v", client, have, local, err)
		}
	}
}

// mayComeBack reports whether a server may have again what it has given back.
func (r *register) mayComeBack(client int, since time.Time) bool {
	return r.touched(client, since.Add(-lingers), func(t touch) bool { return t.data || t.splits })
}

// waitsNoMore checks that no call waits that had begun before its client was closed.
func (r *register) waitsNoMore(client int, k *closing) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.calls {
		if c.client == client && c.waits && c.start.Before(k.began) && !c.counted && r.w.plan.Clients[client].Hooks != "panic" && !c.heldUp && !r.stuttered(k.began) {
			c.counted = true
			r.violate("Close does what it says", "c%d %s %v waits, and it is closed", client, c.what, c.names)
		}
	}
}

// endsByClose checks why a call has failed that waited as its client was closed.
func (r *register) endsByClose(c *call, err error) {
	k := r.closings[c.client]
	if k == nil || !c.waits || c.nested || c.heldUp || r.dead[c.client] || err == errPanicked || !c.start.Before(k.began) || c.ctx.Err() != nil || !c.patient.IsZero() {
		return
	}
	if err == nil || !errors.Is(err, dlock.ErrClosed) {
		wrong := r.touched(c.client, c.start.Add(-lingers), whatever)
		if err == nil || !wrong {
			r.violate("Close does what it says", "c%d %s %v, which waited as it was closed: %v", c.client, c.what, c.names, err)
		}
	}
}
