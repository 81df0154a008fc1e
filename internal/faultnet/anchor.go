package faultnet

import "net"

// anchor is an idle connection through a listener. It keeps the port out of
// reach of other sockets while the listener is closed, so that a proxy can
// refuse connections for a while and come back on the same port.
type anchor struct {
	dialed   net.Conn
	accepted net.Conn
}

func dropAnchor(ln net.Listener) (*anchor, error) {
	dialed, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		return nil, err
	}
	accepted, err := ln.Accept()
	if err != nil {
		dialed.Close()
		return nil, err
	}
	return &anchor{dialed: dialed, accepted: accepted}, nil
}

func (a *anchor) close() {
	a.dialed.Close()
	a.accepted.Close()
}
