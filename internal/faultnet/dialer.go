package faultnet

import (
	"context"
	"net"
)

// DialContext connects to the proxy whatever network and address the client
// library has resolved. The method value p.DialContext is the dialer to give to
// a client.
func (p *Proxy) DialContext(ctx context.Context, _, _ string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "tcp", p.addr)
}
