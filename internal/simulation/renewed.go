package simulation

import (
	"cmp"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

// renewed checks what the hook of a renewal is told. RenewedEvent says that half of the TTL
// or more is left when all is well. A renewal begins with two thirds left, but for the margin
// that its holder does not count on, and so has a sixth less that for its way there and back,
// or for those of a connection and a script that are new: where that is too little the server
// is too far away. A hook that takes its time holds up the renewal of other locks, as Hooks says, and so do the pauses
// of the client library on connections that a server has ended before they were used.
func (r *register) renewed(client int, e dlock.RenewedEvent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	distant := e.TTL/6-backend.Margin(e.TTL) < r.w.plan.renewing(client)*r.w.plan.slowest()
	if r.dead[client] || e.Left+r.w.plan.pausesUnused(client) >= e.TTL/2 || distant || r.w.plan.Clients[client].Hooks == "slow" {
		return
	}
	if !r.touched(client, time.Now().Add(-2*e.TTL-lingers), whatever) {
		r.violate("renewals are in time", "c%d renewed %s under token %d with %v of %v left", client, e.Name, e.Token, e.Left, e.TTL)
	}
}

// renewing is how often a message of a client is on its way until a hold is renewed: the connection is made,
// says who it is, says its name in a round trip of its own, and is told that the script is not known. A client
// of the program's own also says what its library is, and then the program greets the server.
func (p *Plan) renewing(client int) time.Duration {
	own := p.Clients[client].Own
	switch {
	case own == nil:
		return 10
	case own.Greeting != nil && own.Greeting.Selects:
		return 14
	}
	return 12
}

// pausesUnused is for how long the client library of a program's own pauses on connections that it keeps for later and
// a server has ended meanwhile: it repeats what it says first on each of them.
func (p *Plan) pausesUnused(client int) (all time.Duration) {
	own := p.Clients[client].Own
	if p.Ends == 0 || own == nil || own.Pool == nil || own.Retries < 0 {
		return 0
	}
	for i := range cmp.Or(own.Retries, usualRetries) {
		all += min(leastPause+leastPause<<(i+1), mostPause)
	}
	return time.Duration(own.Pool.Least) * all
}

// How often the client library repeats a command where nothing is said of it, and for how long it pauses between.
const (
	usualRetries          = 3
	leastPause, mostPause = 10 * time.Millisecond, time.Second
)
