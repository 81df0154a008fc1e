package backend

// NextInBlock is [Transferer.Transfer] for a backend whose server gives each
// hold a block of size tokens, which begins at a multiple of size: the hold
// passes until they are used up.
func NextInBlock(h *Hold, size uint64) (token uint64, ok bool) {
	next := h.Token + 1
	return next, next%size != 0
}
