package server

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"
)

func TestDialImpatiently(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer ln.Close()
	conn, err := DialImpatiently("tcp", ln.Addr().String(), testLimit)
	must(t, err)
	defer conn.Close()
	peer, err := ln.Accept()
	must(t, err)
	defer peer.Close()

	reply := make([]byte, 1)
	must(t, conn.SetReadDeadline(time.Now().Add(time.Hour)))
	if _, err := conn.Read(reply); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("a server that says nothing: %v", err)
	}
	must(t, conn.SetReadDeadline(time.Now().Add(time.Hour)))
	_, err = peer.Write([]byte("x"))
	must(t, err)
	_, err = conn.Read(reply)
	must(t, err)

	// From here on the caller's deadline counts.
	must(t, conn.SetReadDeadline(time.Now().Add(time.Hour)))
	time.AfterFunc(greetLimit+time.Second, func() { _, _ = peer.Write([]byte("y")) })
	if _, err = conn.Read(reply); err != nil || reply[0] != 'y' {
		t.Errorf("a server that has spoken: %q, %v", reply, err)
	}
}
