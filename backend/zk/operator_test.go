package zk_test

import (
	"errors"
	"testing"

	gozk "github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/internal/server"
)

// TestOperatorAsksAgain has a request that was not sent be sent when the server is back.
func TestOperatorAsksAgain(t *testing.T) {
	t.Parallel()
	s := server.Start(t, server.ZooKeeper{})
	conn, events, err := gozk.Connect([]string{s.Addr()}, limit, gozk.WithLogInfo(false), gozk.WithDialer(server.DialImpatiently))
	must(t, err)
	defer conn.Close()
	become := func(want gozk.State) {
		for e := range events {
			if e.State == want {
				return
			}
		}
	}
	become(gozk.StateHasSession)
	must(t, s.Kill())
	become(gozk.StateDisconnected)
	if _, _, err := conn.Exists("/"); !errors.Is(err, gozk.ErrNoServer) {
		t.Fatalf("no server: %v", err)
	}
	answer := make(chan error, 1)
	go func() {
		answer <- server.WhenConnected(gozk.ErrNoServer, func() error { _, _, err := conn.Exists("/"); return err })
	}()
	must(t, s.Restart(true))
	must(t, <-answer)
}
