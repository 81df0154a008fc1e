package pg

import "github.com/dlock-go/dlock/backend"

// Transfer implements backend.Transferer. A number of the sequence was drawn
// while the lock was held, and stands for itself and for those up to the next
// one: they are the holder's to give out, until there are none left. That
// somebody of another client waits is not known here: only the server's view
// of all its locks would say so, which stops everybody who takes one.
func (b *Backend) Transfer(h *backend.Hold) (token uint64, ok bool) {
	x := h.State.(*hold)
	g := x.grant
	b.mu.Lock()
	defer b.mu.Unlock()
	if x.release != nil || g.over || g.shared || g.pending != nil || g.passes == numberStep-1 {
		return 0, false
	}
	g.passes++
	g.token++ // of the grant, so that readers have it after a downgrade
	return g.token, true
}
