package server

import (
	"errors"
	"math"
	"net"
	"os"
	"strconv"
	"syscall"
	"testing"
)

// A port is a free TCP port of the loopback address, kept for one server.
//
// It is a bound socket that does not listen and allows others to bind it too.
// The kernel then gives the number to nobody who asks for any free port, while
// a server that asks for this very number gets it, also after a restart.
type port struct {
	number int
	socket *os.File
}

// reservePort reserves the wanted port, or any if that is 0.
func reservePort(wanted int) (*port, error) {
	if wanted > math.MaxUint16 {
		return nil, errors.New("no such port")
	}
	socket, err := newSocket()
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	number, err := bindLoopback(socket, wanted)
	if err != nil {
		_ = syscall.Close(socket)
		return nil, err
	}
	return &port{number: number, socket: os.NewFile(uintptr(socket), "reserved port")}, nil
}

// newSocket makes a socket that no child inherits. macOS has no flag for that.
func newSocket() (int, error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(socket)
	}
	return socket, err
}

// busOffset is how far above its port a node of a Redis cluster listens for the others.
// It can be told another one from version 7 on.
const busOffset = 10000

// reserveWithBus reserves the port of such a node, and that for the others.
func reserveWithBus() (node, bus *port, err error) {
	for range 100 { // that far above may be no port, or somebody's
		if node, err = reservePort(0); err != nil {
			return nil, nil, err
		}
		if bus, err = reservePort(node.number + busOffset); err == nil {
			return node, bus, nil
		}
		node.release()
	}
	return nil, nil, err
}

// bindLoopback allows sharing only after the bind, so that the number is one
// that nobody else has.
func bindLoopback(socket, wanted int) (int, error) {
	if err := syscall.Bind(socket, &syscall.SockaddrInet4{Port: wanted, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return 0, os.NewSyscallError("bind", err)
	}
	if err := syscall.SetsockoptInt(socket, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		return 0, os.NewSyscallError("setsockopt", err)
	}
	name, err := syscall.Getsockname(socket)
	if err != nil {
		return 0, os.NewSyscallError("getsockname", err)
	}
	return name.(*syscall.SockaddrInet4).Port, nil
}

func (p *port) addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.number)) }

// release gives the port back. A second call does nothing.
func (p *port) release() { _ = p.socket.Close() }

// ReserveAddr keeps a free loopback address for one test, as "127.0.0.1:port",
// for a listener that no [Kind] knows of: that of members of a cluster for each
// other, for one. It may be listened on as often as the test likes, if that asks
// for SO_REUSEADDR, as Go, Java and most servers do.
func ReserveAddr(t testing.TB) string {
	t.Helper()
	p, err := reservePort(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.release)
	return p.addr()
}
