// Package medallion is a Go program that shares a lock with .NET programs on
// Medallion.Threading.Postgres.
package medallion

import (
	"context"
	"crypto/sha1"
	"encoding/binary"
	"errors"

	"github.com/jackc/pgx/v5"
)

// Key is that of a name which Medallion hashes: one of more than nine characters, or not
// in ASCII, that is no number in hexadecimal digits.
func Key(name string) int64 {
	sum := sha1.Sum([]byte(name))
	return int64(binary.LittleEndian.Uint64(sum[:]))
}

// UnderAdvisoryLock does the work while it holds the advisory lock of that key. It has a
// connection for each lock, which frees it.
func UnderAdvisoryLock(ctx context.Context, url string, key int64, work func(context.Context) error) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock($1)", key); err != nil {
		return err
	}
	ctx, lost := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	go func() { // nobody notifies: it ends with the connection
		_, err := conn.WaitForNotification(ctx)
		lost(errors.Join(errors.New("the advisory lock is lost"), err))
		close(ended)
	}()
	err = work(ctx)
	lost(nil)
	<-ended
	return err
}
