package conformance

import (
	"context"
	"flag"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

// An eventLog is what a failure needs to be understood: who held what since when
// under which token, and what each holder believed.
type eventLog struct {
	start   time.Time
	clients int

	mu     sync.Mutex
	events []string // the last of them
	leases []known  // the last of them
}

// A known lease is one that the property has been given.
type known struct {
	lease *dlock.Lease
	since time.Time
}

// remembered is how many events and leases an event log goes back.
const remembered = 40

// at returns the time since the property began, as the event log prints it.
func (a *eventLog) at(t time.Time) string {
	return fmt.Sprintf("+%.3fs", t.Sub(a.start).Seconds())
}

// watch adds to o what the event log needs to hear of a new client.
func (a *eventLog) watch(o *dlock.Options) {
	a.mu.Lock()
	a.clients++
	client := a.clients
	a.mu.Unlock()
	o.Hooks = dlock.JoinHooks(dlock.Hooks{
		Acquired: func(_ context.Context, e dlock.AcquiredEvent) {
			a.note(client, "acquired", e.Name, e.Shared, e.Token, nil)
		},
		Released: func(_ context.Context, e dlock.ReleasedEvent) {
			a.note(client, "released", e.Name, e.Shared, e.Token, e.Err)
		},
		Lost: func(e dlock.LostEvent) { a.note(client, "lost", e.Name, e.Shared, e.Token, e.Err) },
	}, o.Hooks)
}

func (a *eventLog) note(client int, what, name string, shared bool, token uint64, err error) {
	mode := backend.Exclusive
	if shared {
		mode = backend.Shared
	}
	line := fmt.Sprintf("%s client %d %s %q, %v, token %d", a.at(time.Now()), client, what, short(name), mode, token)
	if err != nil {
		line += ": " + err.Error()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.events = append(a.events[max(0, len(a.events)-remembered+1):], line)
}

// keep remembers a lease that a call has returned.
func (a *eventLog) keep(lease *dlock.Lease) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.leases = append(a.leases[max(0, len(a.leases)-remembered+1):], known{lease, time.Now()})
}

// String tells all that is known, as of now.
func (a *eventLog) String() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out strings.Builder
	for _, e := range a.events {
		fmt.Fprintln(&out, e)
	}
	for _, k := range a.leases {
		if belief := "believes that it holds"; k.lease.Err() == nil {
			fmt.Fprintf(&out, "%s lease with token %d, since %s, %s\n", a.at(time.Now()), k.lease.Token(), a.at(k.since), belief)
		}
	}
	return out.String()
}

// tell logs the event log of a failed property, with the limits that applied.
func (s *scenario) tell() {
	s.Logf("who held what:\n%sTTL %v, of which a holder counts on %v; limit of the property %v, it took %v; %s",
		s.log.String(), s.TTL, s.TTL-backend.Margin(s.TTL), s.limit,
		time.Since(s.log.start).Round(time.Millisecond), stallTime.since(s.log.start))
	s.Logf("run it again: %s", again(s.TB.Name()))
}

// again returns the command that runs just the test of that name, with the flags that
// the test binary was given for its own use.
func again(test string) string {
	args := []string{"go test"}
	flag.Visit(func(f *flag.Flag) {
		if !strings.HasPrefix(f.Name, "test.") {
			args = append(args, fmt.Sprintf("-%s=%v", f.Name, f.Value))
		}
	})
	parts := strings.Split(test, "/")
	for i, part := range parts {
		parts[i] = "^" + regexp.QuoteMeta(part) + "$"
	}
	return strings.Join(args, " ") + " -run '" + strings.Join(parts, "/") + "'"
}

// short cuts a name that is there to be long.
func short(name string) string { return name[:min(len(name), 100)] }
