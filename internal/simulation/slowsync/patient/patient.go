// Package patient stands for package sync where whoever waits for a mutex has to sleep: virtual
// time goes on meanwhile.
package patient

import "sync"

// The rest of package sync, as it is.
type (
	Locker    = sync.Locker
	Cond      = sync.Cond
	Map       = sync.Map
	Pool      = sync.Pool
	WaitGroup = sync.WaitGroup
)

func NewCond(l Locker) *Cond                             { return sync.NewCond(l) }
func OnceFunc(f func()) func()                           { return sync.OnceFunc(f) }
func OnceValue[T any](f func() T) func() T               { return sync.OnceValue(f) }
func OnceValues[T, U any](f func() (T, U)) func() (T, U) { return sync.OnceValues(f) }
