package patient

import "sync"

// Virtual time goes on while somebody waits for a mutex.
type (
	Mutex   = sync.Mutex
	RWMutex = sync.RWMutex
	Once    = sync.Once
)
