package chaos

import (
	"errors"
	"strings"
	"time"

	"github.com/dlock-go/dlock/internal/faultnet"
)

// Ways are the connections of one worker to all servers of its backend, each
// through a proxy. What befalls one befalls all.
type Ways []*faultnet.Proxy

// listen opens a way to each of the addresses, which commas separate. No
// address is no way.
func listen(addrs string) (w Ways, err error) {
	if addrs == "" {
		return nil, nil
	}
	for _, addr := range strings.Split(addrs, ",") {
		p, err := faultnet.Listen(addr)
		if err != nil {
			return nil, errors.Join(err, w.Close())
		}
		w = append(w, p)
	}
	return w, nil
}

// Addr is where the servers are found, with commas between.
func (w Ways) Addr() string {
	var addrs []string
	for _, p := range w {
		addrs = append(addrs, p.Addr())
	}
	return strings.Join(addrs, ",")
}

func (w Ways) each(do func(*faultnet.Proxy) error) (err error) {
	for _, p := range w {
		err = errors.Join(err, do(p))
	}
	return err
}

// The faults are those of a proxy.

func (w Ways) Blackhole(way faultnet.Way) {
	for _, p := range w {
		p.Blackhole(way)
	}
}

func (w Ways) Restore(way faultnet.Way) {
	for _, p := range w {
		p.Restore(way)
	}
}

func (w Ways) Delay(way faultnet.Way, latency, jitter time.Duration) {
	for _, p := range w {
		p.Delay(way, latency, jitter)
	}
}

func (w Ways) DropReply(n int) {
	for _, p := range w {
		p.DropReply(n)
	}
}

func (w Ways) Reset() {
	for _, p := range w {
		p.Reset()
	}
}

func (w Ways) Refuse() {
	for _, p := range w {
		p.Refuse()
	}
}

// Heal ends all faults.
func (w Ways) Heal() error { return w.each((*faultnet.Proxy).Heal) }

// Close ends all connections.
func (w Ways) Close() error { return w.each((*faultnet.Proxy).Close) }
