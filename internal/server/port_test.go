package server

import (
	"errors"
	"net"
	"syscall"
	"testing"
)

func TestReservedPort(t *testing.T) {
	reserved, err := reservePort(0)
	must(t, err)
	defer reserved.release()
	if err := bindExclusively(t, reserved.number); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("bind of a reserved port: %v", err)
	}
	listener, err := net.Listen("tcp", reserved.addr()) // which allows sharing, as servers do
	must(t, err)
	must(t, listener.Close())
	reserved.release()
	must(t, bindExclusively(t, reserved.number))
}

func bindExclusively(t *testing.T, number int) error {
	t.Helper()
	socket, err := newSocket()
	must(t, err)
	defer syscall.Close(socket)
	return syscall.Bind(socket, &syscall.SockaddrInet4{Port: number, Addr: [4]byte{127, 0, 0, 1}})
}
