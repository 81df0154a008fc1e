package redis

import (
	"strconv"
	"time"

	"github.com/dlock-go/dlock/backend"
)

const (
	prefix        = "dlock:"
	channelPrefix = prefix + "c:"
	shardChannel  = ":c:" // after a lock's main key
)

// The life of what nobody needs any more, and the bound of a grant that its
// waiter has not confirmed.
const (
	keep       = 10 * time.Minute // the token of a lock that is free
	unattended = 5 * time.Second
)

// A key is the first of the five keys of one lock: S, R, Q, A and X in that
// order, so that a script that needs fewer takes the first ones.
type key string

var suffixes = [5]string{"", ":r", ":q", ":a", ":x"}

func lockKey(name string) key { return key(mainKey(name)) }

// mainKey is S: the only part in braces, so that all keys share its slot.
func mainKey(name string) string { return prefix + "{" + backend.EncodeName(name) + "}" }

// args are the first n keys for a command. They are cut from one string and
// passed by reference but for the first, by which a cluster client finds the
// node.
func (k key) args(n int) []any {
	main := string(k)
	all := main + ":r" + main + ":q" + main + ":a" + main + ":x"
	names, args := new([5]string), make([]any, n, n+1)
	args[0] = main
	for i := 1; i < n; i++ {
		end := len(main) + len(suffixes[i])
		names[i], all = all[:end], all[end:]
		args[i] = &names[i]
	}
	return args
}

// newID is the id under which r enters the queue for the n-th time. It starts
// with what a script must know of the one it grants the lock to; polls says
// that nobody listens for the grant.
func newID(r *backend.Request, n int, polls bool) string {
	var room [96]byte // most are shorter
	id := room[:0]
	if r.Mode == backend.Shared {
		id = append(id, 'r')
	} else {
		id = append(id, 'w')
	}
	id = strconv.AppendInt(id, millis(r.TTL), 10)
	if polls {
		id = append(id, 'p')
	}
	id = append(id, ':')
	id = r.ID.AppendTo(id)
	if n > 0 {
		id = append(id, '+')
		id = strconv.AppendInt(id, int64(n), 10)
	}
	return string(id)
}

// millis rounds up: a hold is never shorter than was asked for.
func millis(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}
