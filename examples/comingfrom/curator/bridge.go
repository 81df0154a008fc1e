// Package curator is a Go program that shares a lock with Java programs on Curator.
package curator

import (
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"
)

// session is Curator's default as well.
const session = 60 * time.Second

var errLost = errors.New("the connection of the InterProcessMutex is lost")

// UnderMutex does the work while it holds the InterProcessMutex of that path. It has a
// connection for each lock: to close it ends the wait and leaves no node behind. If the lock
// was lost it returns an error, also if the work returned nil.
func UnderMutex(ctx context.Context, servers []string, path string, work func(context.Context) error) error {
	ctx, lost := context.WithCancelCause(ctx)
	defer lost(nil)
	connected := false
	conn, _, err := zk.Connect(servers, session, zk.WithLogInfo(false), zk.WithEventCallback(func(e zk.Event) {
		if connected && e.State == zk.StateDisconnected {
			lost(errLost)
		}
		connected = connected || e.State == zk.StateHasSession
	}))
	if err != nil {
		return err
	}
	defer conn.Close()
	waiting := context.AfterFunc(ctx, conn.Close)
	lock := zk.NewLock(conn, path, zk.WorldACL(zk.PermAll))
	err = lock.Lock()
	if !waiting() || err != nil {
		return errors.Join(context.Cause(ctx), err)
	}
	return errors.Join(work(ctx), lock.Unlock())
}
