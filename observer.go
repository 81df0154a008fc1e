package dlock

// Queued implements backend.Observer: the server says that the lock is held.
func (h *hold) Queued() {
	request, call := h.noteQueued()
	if call != nil {
		call.queuedOnServer(h.lock.name, request)
	}
}

// noteQueued notes that the request waits on the server. It returns the request, and its
// call if hooks are to be told.
func (h *hold) noteQueued() (*requestContext, *call) {
	c := h.lock.client
	c.mu.Lock()
	defer c.mu.Unlock()
	if h.requestCtx == nil || h.isWaiting {
		return nil, nil
	}
	h.isWaiting = true
	h.requestCtx.clearLimit()
	h.state.waitingOnServer++
	h.state.queue.NoteHeld()
	return h.requestCtx, h.call
}

// Answered ends the limit on the first answer; see backend.Request.Answered.
func (h *hold) Answered() {
	c := h.lock.client
	c.mu.Lock()
	defer c.mu.Unlock()
	if h.requestCtx != nil {
		h.requestCtx.clearLimit()
	}
}

// Wanted implements backend.Observer: somebody of another client waits.
func (h *hold) Wanted() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.limitHandOvers()
	h.markWanted()
}

// wantedLocally notes that somebody of this client waits.
func (h *hold) wantedLocally() {
	if h.hasLocalWaiters.Swap(true) {
		return // the holder knows already
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.markWanted()
}

// markWanted closes the channel of Lease.Wanted. The caller holds h.mu.
func (h *hold) markWanted() {
	if h.isWanted {
		return
	}
	h.isWanted = true
	if h.wanted != nil {
		close(h.wanted)
	}
}

// wantedChan returns the channel that markWanted closes for the owner with that token, nil
// if the backend cannot tell.
func (h *hold) wantedChan(token uint64) <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case !h.item.Hold.TellsWanted:
		return nil
	case token != h.item.Hold.Token:
		return closedChan // it was passed on to somebody who waited
	}
	if h.wanted == nil {
		h.wanted = make(chan struct{})
		if h.isWanted {
			close(h.wanted)
		}
	}
	return h.wanted
}
