package protocol

// overhears is how many messages a stranger remembers.
const overhears = 100

// overhear has strangers hear a message of the server.
func (w *World) overhear(m message) {
	w.overheard = append(w.overheard, m)
	w.overheard = w.overheard[max(0, len(w.overheard)-overhears):]
}

// forge sends a client a grant as good as a stranger can make one: for an ID that the
// client waits under, or another of any client, at the right time, under a token that
// is greater than all.
func (w *World) forge() {
	to, of := w.anybody(), w.anybody()
	if w.chance(0.5) {
		of = to
	}
	i := id{client: of.number, n: of.ids}
	switch {
	case of.try != nil:
		i = of.try.id
	case of.holds != nil:
		i = of.holds.id
	}
	now := w.server.time()
	to.later(w.upTo(3*millisecond), func() {
		to.hear(message{id: i, token: 8e15, at: now, expiry: now + w.TTL, forged: true})
	})
}

// replay sends a client a message that it has been sent before.
func (w *World) replay() {
	if len(w.overheard) == 0 {
		return
	}
	m := w.overheard[w.upTo(int64(len(w.overheard)))]
	c := w.clients[m.client]
	c.later(w.upTo(3*millisecond), func() { c.hear(m) })
}
