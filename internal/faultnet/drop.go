package faultnet

import (
	"slices"
	"sync/atomic"
	"time"
)

// replyWait bounds how long a drop waits for the server to answer.
const replyWait = 5 * time.Second

// Drop is an armed loss of one reply, made by [Proxy.DropReply] or
// [Proxy.DropReplyAfter]. Its methods are safe for concurrent use.
type Drop struct {
	proxy    *Proxy
	match    func(req []byte) bool
	fired    chan struct{}
	answered atomic.Bool
}

// DropReply drops the reply to the n-th request after now, counted over all
// connections; the next one for n ≤ 1. Without a framing it counts chunks.
// Clients send requests of their own, to greet or to keep a pool filled: to hit
// a certain operation, use [Proxy.DropReplyAfter].
func (p *Proxy) DropReply(n int) *Drop {
	return p.DropReplyAfter(func([]byte) bool {
		n--
		return n <= 0
	})
}

// DropReplyAfter drops the reply to the first request for which match is true.
// That request is forwarded. From then on nothing that the server sends on the
// connection reaches the client, and once the server has answered, or after five
// seconds without an answer, both ends of the connection are reset.
//
// With a framing, match sees each request whole, nothing behind the matched one
// is forwarded, and the answer is the reply to that very request. Without, match
// sees chunks, whose borders mean nothing, later chunks are forwarded, and the
// first bytes from the server count as its answer.
//
// Calls of match never overlap; it may use req only until it returns and must
// not call the proxy. Several drops can be armed: each sees every request.
func (p *Proxy) DropReplyAfter(match func(req []byte) bool) *Drop {
	d := &Drop{proxy: p, match: match, fired: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.armed = append(p.armed, d)
	return d
}

// Fired is closed when a request has matched and its connection has ended
// without the reply.
func (d *Drop) Fired() <-chan struct{} { return d.fired }

// Answered reports whether the server's answer was seen and swallowed, so that
// the request was certainly carried out. If it does so at all, it does before the
// client can see that its connection has ended.
func (d *Drop) Answered() bool { return d.answered.Load() }

// Disarm takes the drop back unless a request has matched already.
func (d *Drop) Disarm() {
	d.proxy.mu.Lock()
	defer d.proxy.mu.Unlock()
	d.proxy.armed = slices.DeleteFunc(d.proxy.armed, func(o *Drop) bool { return o == d })
}

func (p *Proxy) disarmAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.armed = nil
}

// matching disarms and returns the drops that req sets off.
func (p *Proxy) matching(req []byte) []*Drop {
	p.mu.Lock()
	defer p.mu.Unlock()
	var hit []*Drop
	p.armed = slices.DeleteFunc(p.armed, func(d *Drop) bool {
		if !d.match(req) {
			return false
		}
		hit = append(hit, d)
		return true
	})
	return hit
}
