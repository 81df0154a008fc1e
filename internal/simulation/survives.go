package simulation

// survives checks that a lease on a quorum outlives what happens to one server of three, or two of
// five. Before the others have joined a hold it may have a bare majority, and be lost with one of
// that; so it may where a client that was cut off has a part at one of the others. That trouble with
// those servers has lasted since before the lease was asked for is no excuse: the others are enough.
func (r *register) survives(b *belief, err error) {
	since := b.asked.Add(-2*longestTTL(r.w.plan.TTL) - 2*lingers)
	if r.w.plan.Backend != "quorum" || r.standsBehind(b) || r.isShort(b.ttl) || !r.outvoted(since) || r.isAnyCutOff(since) {
		return
	}
	if b.ended.Sub(b.granted) > prompt {
		r.violate("a lease outlives a server", "%v: %v", b, err)
	}
}
