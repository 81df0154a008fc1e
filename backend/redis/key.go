package redis

import (
	"time"

	"github.com/dlock-go/dlock/backend"
)

const (
	prefix        = "dlock:"
	channelPrefix = prefix + "c:"
	shardChannel  = ":c:" // after a lock's main key
)

const (
	// defaultKeep is for how long the token of a free lock is kept, and minKeep the
	// least for which it may be.
	defaultKeep, minKeep = 10 * time.Minute, time.Second

	// unconfirmed is how long a grant lasts that its waiter has not confirmed.
	unconfirmed = 5 * time.Second
)

// A key is the first of the five keys of one lock: S, R, Q, A and X in that
// order, so that a script that needs fewer takes the first ones. S alone is in
// braces, so that all five share a slot.
type key string

var suffixes = [5]string{"", ":r", ":q", ":a", ":x"}

func lockKey(name string) key {
	b := append(make([]byte, 0, 96), prefix+"{"...)
	return key(append(backend.AppendName(b, name), '}'))
}

// args are the first n keys as arguments of a command.
func (k key) args(n int) []any {
	args := make([]any, n)
	for i := range args {
		args[i] = string(k) + suffixes[i]
	}
	return args
}
