package simulation

import (
	"slices"
	"time"

	"github.com/dlock-go/dlock"
)

// From whom a lock came is told of each lease. Where one server knows, that is compared with whether it has granted
// the token, and to whom it had queued; of several locks, each counts, the server's word first. Readers share
// a hold, which one of them has brought. On a quorum members know a token that was not passed on within
// the client.

// comesFrom is from whom a lock came that was granted by one server, or passed on.
func (l *lockLog) comesFrom(token uint64) (granted, queued bool) {
	for id, t := range l.tokenOf {
		if t == token {
			_, q := l.queued[requestOf(id)]
			granted, queued = true, queued || q
		}
	}
	return granted, queued
}

// cameTwice reports whether servers have granted a lock to two who write under one token, as they may after
// Break and a loss of data: it does not tell from whom the second came.
func (l *lockLog) cameTwice(token uint64) bool {
	n := 0
	for id, t := range l.tokenOf {
		if t == token && id[0] == 'w' {
			n++
		}
	}
	return n > 1
}

// seesHandOvers reports whether it is known from whom the locks of a call of a client came.
func (r *register) seesHandOvers(client int, e dlock.AcquiredEvent) bool {
	return !e.Nested && r.w.hasServers() && !r.dead[client] && !r.touched(client, time.Now().Add(-lingers-e.Waited), whatever)
}

// handsOverAll checks what hooks were told of the hand-over of several locks. Those that were entered again
// count for none.
func (r *register) handsOverAll(client int, e dlock.AcquiredEvent, all []*belief) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !all[0].multi || r.w.plan.Backend == "quorum" || !r.seesHandOvers(client, e) {
		return
	}
	from := dlock.NoHandOver
	for _, b := range all {
		if b.parent != nil {
			continue
		}
		if r.lock(b.name).cameTwice(b.token) {
			return
		}
		switch granted, queued := r.lock(b.name).comesFrom(b.token); {
		case queued:
			from = dlock.RemoteHandOver
		case !granted && from == dlock.NoHandOver:
			from = dlock.LocalHandOver
		}
	}
	if e.HandOver != from {
		r.violate("hooks are told what is", "c%d: %+v, and its locks came by %q", client, e, from)
	}
}

// joinsReaders checks what hooks are told of the hand-over of a lock to a reader: who waited in the queue of the
// server was seen there, and of those who share that hold one is told so.
func (r *register) joinsReaders(client int, e dlock.AcquiredEvent) {
	mine, queued, atOnce := r.w.label(client), false, false
	l := r.lock(e.FullName)
	for id, token := range l.tokenOf {
		if token == e.Token && r.w.keeper(e.FullName).owner(id) == mine {
			_, q := l.queued[requestOf(id)]
			queued, atOnce = queued || q, atOnce || !q
		}
	}
	switch {
	case e.HandOver == dlock.LocalHandOver, e.HandOver == dlock.RemoteHandOver && !queued:
		r.violate("hooks are told what is", "c%d: %+v, which is a reader's and has not queued", client, e)
	case e.HandOver == dlock.NoHandOver && queued && !atOnce:
		time.AfterFunc(late, func() { r.wasBrought(party{client, e.FullName}, e) })
	}
}

// wasBrought checks that a hold that waited in the queue of the server was told to one of those who share it, which
// may have been a writer.
func (r *register) wasBrought(p party, e dlock.AcquiredEvent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.brought[p] != e.Token && r.w.plan.Clients[p.client].Hooks != "panic" {
		r.violate("hooks are told what is", "c%d: %+v; its hold has queued, and nobody was told", p.client, e)
	}
}

// handsOverOnQuorum checks what hooks are told of a hand-over on a quorum: a token that was not passed on within
// the client is that of a member, and one that was is not known to as many members as a hold takes.
func (r *register) handsOverOnQuorum(client int, e dlock.AcquiredEvent) {
	know := 0
	for _, s := range r.w.keepers(e.FullName) {
		if uint64(r.lock(e.FullName).last[s.index].token) >= e.Token {
			know++
		}
	}
	local := e.HandOver == dlock.LocalHandOver
	if local && know >= r.w.plan.need() || !local && know == 0 {
		r.violate("hooks are told what is", "c%d: %+v, and %d members know that token", client, e, know)
	}
}

// isToldOf checks what hooks were told of how the locks of a lease came.
func (a *actor) isToldOf(lease *dlock.Lease, all []*belief) {
	l := a.c.hooks
	l.mu.Lock()
	h := l.byLease[lease]
	l.mu.Unlock()
	if h != nil {
		a.w.reg.handsOverAll(a.c.index, h.AcquiredEvent, slices.Clone(all))
	}
}
