package redis

import (
	"encoding"
	"math"
	"strconv"
	"strings"
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
func mainKey(name string) string { return string(appendKey(make([]byte, 0, 96), name)) }

// appendKey appends the main key of a lock.
func appendKey(b []byte, name string) []byte {
	b = append(b, prefix+"{"...)
	b = backend.AppendName(b, name)
	return append(b, '}')
}

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

// An identity is what the id of one entry into the queue is made of. The id starts
// with what a script must know of the one it grants the lock to.
type identity struct {
	request *backend.Request
	entry   int32 // how often the request had been in the queue before
	rejoin  int32 // for how many ms a server that is one of several must have kept its data
	reader  bool  // the mode of a request may change, an id does not
	polls   bool  // nobody listens for the grant
	proof   mac   // that this client has made the id
}

// identify is the identity of an entry that request makes into the queue of a lock.
func (m *maker) identify(k key, r *backend.Request, entry int32, polls bool, v *backend.Ballot) identity {
	i := identity{request: r, entry: entry, reader: r.Mode == backend.Shared, polls: polls}
	if v != nil {
		i.rejoin = int32(min(millis(v.Rejoin), math.MaxInt32))
	}
	var room [96]byte
	i.proof = m.prove(k, i.appendOpen(room[:0]))
	return i
}

// id is the text of i. Knowing it allows the hold to be released.
func (i *identity) id() string {
	var room [96]byte // most are shorter
	return string(i.appendID(room[:0]))
}

func (i *identity) appendID(b []byte) []byte {
	return i.proof.appendTo(append(i.appendOpen(b), '.'))
}

// appendOpen appends what anybody could guess of the id.
func (i *identity) appendOpen(b []byte) []byte {
	if i.reader {
		b = append(b, 'r')
	} else {
		b = append(b, 'w')
	}
	b = strconv.AppendInt(b, millis(i.request.TTL), 10)
	if i.polls {
		b = append(b, 'p')
	}
	if i.rejoin > 0 {
		b = append(b, 'v')
		b = strconv.AppendInt(b, int64(i.rejoin), 10)
	}
	b = append(b, ':')
	b = i.request.ID.AppendTo(b)
	if i.entry > 0 {
		b = append(b, '+')
		b = strconv.AppendInt(b, int64(i.entry), 10)
	}
	return b
}

// The main key and the id of a hold as arguments of a command. They are written
// when it is sent, so that none of many holds has to keep its own.
type (
	keyArg state
	idArg  state
)

var _, _ encoding.BinaryMarshaler = (*keyArg)(nil), (*idArg)(nil)

// MarshalBinary is for commands that the client library sends.
func (a *keyArg) MarshalBinary() ([]byte, error) { return appendKey(nil, a.request.Name), nil }

// MarshalBinary is for commands that the client library sends.
func (a *idArg) MarshalBinary() ([]byte, error) { return a.appendID(nil), nil }

// requestOf is the request whose id it may be.
func requestOf(id string) backend.ID {
	id, _, _ = strings.Cut(id, ".")
	id, _, _ = strings.Cut(id, "+")
	rest, number, _ := cutLast(id, ':')
	_, client, _ := strings.Cut(rest, ":")
	seq, _ := strconv.ParseUint(number, 10, 64) // no request has number 0
	return backend.ID{Client: client, Seq: seq}
}

// millis rounds up: a hold is never shorter than was asked for.
func millis(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}
