package simulation

import (
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

// renewed checks what the hook of a renewal is told. RenewedEvent says that half of the TTL
// or more is left when all is well. A renewal begins with two thirds left, but for the margin
// that its holder does not count on, and so has a sixth less that for its way there and back,
// or for those of a connection and a script that are new: where that is too little the server
// is too far away. A hook that takes its time holds up the renewal of other locks, as Hooks says.
func (r *register) renewed(client int, e dlock.RenewedEvent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	distant := e.TTL/6-backend.Margin(e.TTL) < r.w.plan.renewing(client)*r.w.plan.slowest()
	if r.dead[client] || e.Left >= e.TTL/2 || distant || r.w.plan.Clients[client].Hooks == "slow" {
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
