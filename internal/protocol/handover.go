package protocol

// passRate is how many holders a microsecond a client can hand the lock through
// without asking the server.
const passRate = 5

// pass hands the lock to those who wait in the client, each with a token of its
// own, and reports whether it could. How far the tokens may go is bounded by
// what the server is sure to exceed: at the end of the lease by its clock, and
// at any moment, should it lose its data, by the time that has passed.
func (h *hold) pass() bool {
	if h.deadline-h.clock() < h.TTL/3 {
		return false
	}
	busy := h.upTo(h.TTL / 10)
	last := h.token + busy*passRate
	if !h.without(WithinLease) {
		last = min(last, h.expiry-1)
	}
	if !h.without(WithinElapsed) {
		elapsed := h.clock() - h.received
		last = min(last, h.first+elapsed-elapsed/2000)
	}
	if last <= h.token {
		return false
	}
	h.handedOn(h, h.token+1, last)
	h.token, h.reached[h.id] = last, last
	return true
}
