package chaos

import (
	"errors"
	"strings"
	"time"

	"github.com/dlock-go/dlock/internal/faultnet"
)

// Proxies are the connections of one worker to all servers of its backend, each
// through a proxy. What befalls one befalls all.
type Proxies []*faultnet.Proxy

// listen opens a way to each of the addresses, which commas separate. No
// address is no way.
func listen(addrs string) (w Proxies, err error) {
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
func (w Proxies) Addr() string {
	var addrs []string
	for _, p := range w {
		addrs = append(addrs, p.Addr())
	}
	return strings.Join(addrs, ",")
}

func (w Proxies) each(do func(*faultnet.Proxy) error) (err error) {
	for _, p := range w {
		err = errors.Join(err, do(p))
	}
	return err
}

// The faults are those of a proxy.

func (w Proxies) Blackhole(way faultnet.Way) {
	for _, p := range w {
		p.Blackhole(way)
	}
}

func (w Proxies) Restore(way faultnet.Way) {
	for _, p := range w {
		p.Restore(way)
	}
}

func (w Proxies) Delay(way faultnet.Way, latency, jitter time.Duration) {
	for _, p := range w {
		p.Delay(way, latency, jitter)
	}
}

func (w Proxies) DropReply(n int) {
	for _, p := range w {
		p.DropReply(n)
	}
}

func (w Proxies) Reset() {
	for _, p := range w {
		p.Reset()
	}
}

func (w Proxies) Refuse() {
	for _, p := range w {
		p.Refuse()
	}
}

// Heal ends all faults.
func (w Proxies) Heal() error { return w.each((*faultnet.Proxy).Heal) }

// Close ends all connections.
func (w Proxies) Close() error { return w.each((*faultnet.Proxy).Close) }
