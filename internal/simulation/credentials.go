package simulation

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"time"
)

func init() {
	// The servers have a new password, and clients hear of that later: until then they are told the old
	// one, or nothing, or have to wait for it. Connections go on as who they are.
	maps.Copy(kinds, map[string]touch{"rotate": {fails: true, denies: true, polls: true}})
	keepsConnections = append(keepsConnections, "rotate")
}

// rotates has the password change in a part of the plans that have faults.
func (g *generator) rotates() {
	p := g.plan
	if p.Backend == "memory" || len(p.Faults) == 0 || !g.often(15) {
		return
	}
	p.Rotates = true
	if g.often(40) {
		p.Faults = nil
	}
	for range 1 + g.IntN(4) {
		f := Fault{Kind: "rotate", At: g.within(0, p.Length), Client: -1, Way: g.IntN(3)}
		f.For = g.lasting()
		p.Faults = append(p.Faults, f)
	}
}

// errVault is what a client is told in place of a password.
var errVault = errors.New("the vault is closed")

// mostWait is how long a client waits for a password at most.
const mostWait = 500 * time.Millisecond

// A vault has the passwords of all times. It is guarded by the mutex of the network.
type vault struct {
	newest  int
	told    int       // what clients are told
	closed  time.Time // nothing is told until then
	crowded time.Time // what is told takes its time
}

func secretOf(n int) string { return "secret-" + strconv.Itoa(n) }

// rotate has the servers have a new password, which clients are told when the fault is over.
func (w *world) rotate(f Fault, end time.Time) {
	w.net.mu.Lock()
	defer w.net.mu.Unlock()
	v := &w.vault
	v.newest++
	switch n := v.newest; f.Way {
	case 0:
		time.AfterFunc(f.For, func() {
			w.net.mu.Lock()
			defer w.net.mu.Unlock()
			v.told = max(v.told, n)
			go w.tellsCredentials(-1)
		})
		return
	case 1:
		v.closed = end
	case 2:
		v.crowded = end
	}
	v.told = v.newest
	go w.tellsCredentials(-1)
}

// credentials are those with which a client connects. A subscription connects with a mutex held, and
// waits for nothing; see dial.
func (w *world) credentials(ctx context.Context) (name, secret string, err error) {
	w.net.mu.Lock()
	v := w.vault
	w.net.mu.Unlock()
	now := time.Now()
	if now.Before(v.crowded) && !isSubscription() && !w.plan.Sentinels {
		if err := sleep(ctx, mostWait); err != nil {
			return "", "", err
		}
	}
	if now.Before(v.closed) {
		return "", "", errVault
	}
	return user, secretOf(v.told), nil
}

// provider is what clients are made with; nil: they have one password for ever.
func (w *world) provider() func(context.Context) (name, secret string, err error) {
	if !w.plan.Rotates {
		return nil
	}
	return w.credentials
}

// admits reports whether a login has the password that the servers have.
func (w *world) admits(args []string) bool {
	if !w.plan.Rotates {
		return true
	}
	w.net.mu.Lock()
	defer w.net.mu.Unlock()
	return slices.Contains(args, secretOf(w.vault.newest))
}
