package simulation

// Receipts know how much of what was written to a pipe has been read. They are guarded by the mutex
// of the pipe.
type receipts struct {
	sent, read int  // bytes
	missed     bool // something that was written never arrives
	awaited    []receipt
}

// A receipt is due when so much has been read.
type receipt struct {
	read int
	f    func()
}

// whenRead calls f when all that was written so far has been read, and never if some of it does not
// arrive.
func (p *pipe) whenRead(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil && !p.missed {
		p.awaited = append(p.awaited, receipt{p.sent, f})
		p.receive(0)
	}
}

// isEmpty reports whether all that was written has been read.
func (p *pipe) isEmpty() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.chunks) == 0
}

// receive notes that n bytes more have been read.
func (r *receipts) receive(n int) {
	r.read += n
	for len(r.awaited) > 0 && r.awaited[0].read <= r.read {
		go r.awaited[0].f()
		r.awaited = r.awaited[1:]
	}
}
