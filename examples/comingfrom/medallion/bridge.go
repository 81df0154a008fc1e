// Package medallion is a Go program that shares a lock with .NET programs on
// Medallion.Threading.Postgres.
package medallion

import (
	"context"
	"crypto/sha1"
	"encoding/binary"
	"errors"
	"strconv"
	"time"
	"unicode"

	"github.com/jackc/pgx/v5"
)

// Key is what Medallion makes of a name: the arguments of pg_advisory_lock. A name of two
// numbers in hexadecimal digits, such as "0000002a,00000001", is not for it: the key is those.
func Key(name string) []any {
	if n, ok := pack(name); ok {
		return []any{int32(n >> 32), int32(n)}
	}
	if n, err := strconv.ParseUint(name, 16, 64); err == nil && len(name) == 16 {
		return []any{int64(n)}
	}
	sum := sha1.Sum([]byte(name))
	return []any{int64(binary.LittleEndian.Uint64(sum[:]))}
}

// pack makes a number of up to nine characters of seven bits. A zero and ones fill it up.
func pack(name string) (n uint64, ok bool) {
	if len(name) > 9 {
		return 0, false
	}
	for _, c := range []byte(name) {
		if c > unicode.MaxASCII {
			return 0, false
		}
		n = n<<7 | uint64(c)
	}
	n <<= 1
	for range 9 - len(name) {
		n = n<<7 | 0x7f
	}
	return n, true
}

// patience is for a server that does not answer.
const patience = 5 * time.Second

var errLost = errors.New("the advisory lock is lost")

// UnderAdvisoryLock does the work while it holds the advisory lock of that key. It has a
// connection for each lock. If the lock was lost it returns an error, also if the work
// returned nil.
func UnderAdvisoryLock(ctx context.Context, url string, key []any, work func(context.Context) error) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx)) // also if work panics
	args := "($1)"
	if len(key) == 2 {
		args = "($1, $2)"
	}
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock"+args, key...); err != nil {
		return err
	}
	ctx, lost := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	go func() { // nobody notifies: it ends with the connection
		_, err := conn.WaitForNotification(ctx)
		lost(errors.Join(errLost, err))
		close(ended)
	}()
	err = work(ctx)
	lost(nil)
	<-ended
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	if _, unlockErr := conn.Exec(end, "SELECT pg_advisory_unlock"+args, key...); unlockErr != nil {
		return errors.Join(err, errLost, unlockErr)
	}
	return err
}
