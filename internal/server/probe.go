package server

import (
	"context"
	"io"
	"net"
)

// beginningLength is more than a probe needs of a reply.
const beginningLength = 512

// ask sends a request and returns the beginning of the reply. It does not wait
// for the rest: a ZooKeeper that is about to serve answers but hangs up late.
func ask(ctx context.Context, addr, request string) (string, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if _, err := io.WriteString(conn, request); err != nil {
		return "", err
	}
	reply := make([]byte, beginningLength)
	length, err := conn.Read(reply)
	if err != nil {
		return "", err
	}
	return string(reply[:length]), nil
}
