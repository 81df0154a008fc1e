// Command fencing-redis ships order 42 under a lock, and has Redis refuse what a holder
// writes that has lost the lock and does not know it yet.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock"
	dlockredis "github.com/dlock-go/dlock/backend/redis"
)

var errStale = errors.New("a later holder of the lock has written")

func main() {
	ctx := context.Background()
	options, err := redis.ParseURL(os.Getenv("REDIS_URL"))
	if err != nil {
		log.Fatal(err)
	}
	rdb := redis.NewClient(options) // for the orders and for the locks
	defer rdb.Close()
	locks, err := dlock.New(dlockredis.New(rdb, nil), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(ctx)
	err = dlock.Do(ctx, locks.Mutex("orders/42"), func(ctx context.Context, lease *dlock.Lease) error {
		return save(ctx, rdb, "order:42", "shipped", lease.Token())
	})
	if err != nil {
		log.Fatal(err)
	}
}

// saveScript runs as a whole: nothing comes between the comparison and the write.
var saveScript = redis.NewScript(`
	local seen = redis.call('HGET', KEYS[1], 'fence')
	if seen and seen > ARGV[2] then
		return 0
	end
	redis.call('HSET', KEYS[1], 'state', ARGV[1], 'fence', ARGV[2])
	return 1`)

// save writes the state of an order, or fails with errStale. Tokens are text of one length:
// as numbers, Lua would confuse those above 2^53.
func save(ctx context.Context, rdb redis.Scripter, key, state string, token uint64) error {
	written, err := saveScript.Run(ctx, rdb, []string{key}, state, fmt.Sprintf("%020d", token)).Bool()
	if err == nil && !written {
		err = errStale
	}
	return err
}
