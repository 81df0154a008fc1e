package simulation

// leftOnQuorum checks that no member of a quorum has anything of a client that has had no call and no
// lease there for some time, where nothing has gone wrong: what was given back, and what a request
// that came to nothing had got, is released at all of them.
func (r *register) leftOnQuorum(name string) {
	if len(r.touches) > 0 {
		return
	}
	l := r.lock(name)
	for _, s := range r.w.masters() {
		if t, found := l.last[s.index]; found {
			r.leftovers(s, name, t.asOf(s.clock().UnixMilli()))
		}
	}
}
