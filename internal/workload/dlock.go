package workload

import (
	"context"
	"time"

	"github.com/dlock-go/dlock"
)

// goodbye is how long a client may take to part from its server.
const goodbye = 30 * time.Second

// DLock is this library as a contender. Each call of open returns a client of
// its own.
func DLock(name string, m Meter, open func(ctx context.Context, o dlock.Options) (*dlock.Client, error)) Contender {
	return Contender{Name: name, Meter: m, Open: func(ctx context.Context, o Options) (Client, error) {
		c, err := open(ctx, dlock.Options{TTL: o.TTL})
		return party{c}, err
	}}
}

type party struct{ *dlock.Client }

func (p party) Lock(name string) Lock { return &handle{m: p.Mutex(name)} }

func (p party) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), goodbye)
	defer cancel()
	return p.Client.Close(ctx)
}

// A handle keeps the lease for whoever has it.
type handle struct {
	m     *dlock.Mutex
	lease *dlock.Lease
}

func (h *handle) Lock(ctx context.Context) (err error) {
	h.lease, err = h.m.Lock(ctx)
	return err
}

func (h *handle) Unlock(ctx context.Context) error { return h.lease.Unlock(ctx) }

func (h *handle) Err() error { return h.lease.Err() }
