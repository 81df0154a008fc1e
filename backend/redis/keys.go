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

// keys are the five keys of one lock: S, R, Q, A and X in that order, so that
// a script that needs fewer takes the first ones.
type keys struct {
	names [5]string
	args  [5]any // the names for a command
}

var suffixes = [5]string{"", ":r", ":q", ":a", ":x"}

func lockKeys(name string) *keys { return keysOf(mainKey(name)) }

// mainKey is S: the only part in braces, so that all keys share its slot.
func mainKey(name string) string { return prefix + "{" + backend.EncodeName(name) + "}" }

// keysOf cuts all names from one string, and passes them on by reference but
// for the first, by which a cluster client finds the node.
func keysOf(main string) *keys {
	all := main + main + ":r" + main + ":q" + main + ":a" + main + ":x"
	k := new(keys)
	for i, suffix := range suffixes {
		end := len(main) + len(suffix)
		k.names[i], all = all[:end], all[end:]
		k.args[i] = &k.names[i]
	}
	k.args[0] = k.names[0]
	return k
}

// newID is the id under which r enters the queue for the n-th time. It starts
// with what a script must know of the one it grants the lock to; polls says
// that nobody listens for the grant.
func newID(r *backend.Request, n int, polls bool) string {
	id := make([]byte, 0, len(r.ID.Client)+40)
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
