package redis

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

// stuckNode is a node of a cluster that says who has the slots, and nothing else: it returns its
// address.
func stuckNode(t *testing.T) string {
	t.Helper()
	return nodeSaying(t, "")
}

// nodeSaying is one that says text to all else.
func nodeSaying(t *testing.T, text string) string {
	t.Helper()
	return nodeNaming(t, text, true)
}

// nodeNaming is one that says that it has all slots, or names nobody.
func nodeNaming(t *testing.T, text string, itself bool) string {
	t.Helper()
	l := must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	t.Cleanup(func() { _ = l.Close() })
	host, port, _ := net.SplitHostPort(l.Addr().String())
	slots := fmt.Sprintf("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$%d\r\n%s\r\n:%s\r\n", len(host), host, port)
	if !itself {
		slots = "*0\r\n"
	}
	serve := func(conn net.Conn) {
		defer conn.Close()
		for in := bufio.NewReader(conn); ; {
			args := readRequest(in)
			if args == nil {
				return
			}
			reply := text
			switch strings.ToLower(args[0]) {
			case "hello":
				reply = "-ERR unknown command 'hello'\r\n"
			case "cluster":
				reply = slots
			}
			if _, err := io.WriteString(conn, reply); err != nil {
				return
			}
		}
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go serve(conn)
		}
	}()
	return l.Addr().String()
}

// TestOpenOfAStuckCluster opens a cluster whose nodes hang. The client library asks some of them
// what a command is before it sends that, for up to five seconds whatever the context.
func TestOpenOfAStuckCluster(t *testing.T) {
	t.Parallel()
	url := fmt.Sprintf("redis+cluster://%s,%s,%s?read_timeout=1m", stuckNode(t), stuckNode(t), stuckNode(t))
	ctx, cancel := context.WithTimeout(within(t), 100*time.Millisecond)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := dlock.Open(ctx, url, nil)
		done <- err
	}()
	select {
	case err := <-done:
		is(t, err, backend.ErrUnavailable)
	case <-time.After(4 * time.Second):
		t.Error("it goes on, though its context has ended")
	}
}
