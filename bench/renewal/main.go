// Command renewal measures what becomes of many locks at once: when their client is
// cut off, when there are more than can be renewed, beside others, and at Close.
// It starts the servers that it needs and prints tables:
//
//	go -C bench run ./renewal                  # all
//	go -C bench run ./renewal -only cut,close  # some of cut, load, beside, close
//	go -C bench run ./renewal -only load -chart results/left.svg
//	go -C bench run ./renewal -only close -on etcd,zk,pg,file -most 10000
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dlock-go/dlock"
	_ "github.com/dlock-go/dlock/backend/etcd"
	_ "github.com/dlock-go/dlock/backend/file"
	"github.com/dlock-go/dlock/backend/memory"
	_ "github.com/dlock-go/dlock/backend/pg"
	_ "github.com/dlock-go/dlock/backend/redis"
	_ "github.com/dlock-go/dlock/backend/zk"
	"github.com/dlock-go/dlock/internal/faultnet"
	"github.com/dlock-go/dlock/internal/server"
)

var background = context.Background()

func main() {
	only := flag.String("only", "cut,load,beside,close", "what to measure")
	on := flag.String("on", "memory,redis", "where to measure it; close also on etcd, zk, pg and file")
	most := flag.Int("most", 100_000, "how many locks at most")
	ttls := flag.String("ttl", "1s,10s", "leases for cut")
	besides := flag.String("beside", "6s,30s", "leases for beside")
	turns := flag.Int("turns", 3, "how often beside measures each")
	rate := flag.Int("rate", 130_000, "how many renewals a second this machine can do, for load")
	times := flag.String("times", "1,2,4", "how many times as many locks as can be renewed, for load")
	drawing := flag.String("chart", "", "a file for the chart of load")
	flag.Parse()
	measurements := map[string]func(*place) error{
		"cut":    func(p *place) error { return cutAll(p, *most, *ttls) },
		"load":   func(p *place) error { return loadAll(p, *rate, *times, *drawing) },
		"beside": func(p *place) error { return besideAll(p, *most, *turns, *besides) },
		"close":  func(p *place) error { return closing(p, *most) },
	}
	var errs []error
	for _, what := range strings.Split(*only, ",") {
		for _, where := range strings.Split(*on, ",") {
			if f := measurements[what]; f != nil && (what != "load" || where == "redis") {
				errs = append(errs, at(where, f))
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		fmt.Fprintln(os.Stderr, "renewal:", err)
		os.Exit(1)
	}
}

// A place is a server, and a way to it that can be cut.
type place struct {
	name string
	open func(dlock.Options) (*dlock.Client, error) // of a client that nothing cuts off
	near func(dlock.Options) (*dlock.Client, func(), error)
}

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

func at(name string, f func(*place) error) error {
	if name == "memory" {
		s := memory.NewServer()
		return f(&place{name,
			func(o dlock.Options) (*dlock.Client, error) { return dlock.New(memory.New(s), &o) },
			func(o dlock.Options) (*dlock.Client, func(), error) {
				b := memory.New(s)
				c, err := dlock.New(b, &o)
				return c, b.Cut, err
			},
		})
	}
	if name == "file" {
		dir, err := os.MkdirTemp("", "dlock-renewal-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		return f(&place{name: name, open: func(o dlock.Options) (*dlock.Client, error) {
			return dlock.Open(background, "file://"+dir, &o)
		}})
	}
	kind, ok := kinds[name]
	if !ok {
		return fmt.Errorf("no server %q", name)
	}
	s, err := server.New(kind.kind)
	if err != nil {
		return err
	}
	defer s.Close()
	open := func(addr string, o dlock.Options) (*dlock.Client, error) {
		return dlock.Open(background, fmt.Sprintf(kind.url, addr), &o)
	}
	return f(&place{name,
		func(o dlock.Options) (*dlock.Client, error) { return open(s.Addr(), o) },
		func(o dlock.Options) (*dlock.Client, func(), error) {
			p, err := faultnet.Listen(s.Addr())
			if err != nil {
				return nil, nil, err
			}
			c, err := open(p.Addr(), o)
			return c, func() { p.Blackhole(faultnet.BothWays) }, err
		},
	})
}

// kinds are the servers that can be started, and the URL of each at an address.
var kinds = map[string]struct {
	kind server.Kind
	url  string
}{
	"redis": {server.Redis{}, "redis://%s"},
	"etcd":  {server.Etcd{}, "etcd://%s"},
	"zk":    {server.ZooKeeper{Heap: "1g", Config: []string{"tickTime=1000", "maxSessionTimeout=120000"}}, "zk://%s?ensemble=false"},
	"pg":    {server.Postgres{Settings: []string{"max_locks_per_transaction=2048"}}, "postgres://postgres@%s/postgres?sslmode=disable"},
}

// each calls f for 0 to n-1 from so many goroutines and waits for all.
func each(n, workers int, f func(int)) {
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			for i := w; i < n; i += workers {
				f(i)
			}
		})
	}
	all.Wait()
}

const takers = 16

// take takes n locks.
func take(c *dlock.Client, n int, taken func(i int, l *dlock.Lease)) (failed int) {
	_, failed = takeUntil(time.Now().Add(time.Hour), c, n, taken)
	return failed
}

// takeUntil takes n locks, or as many as it can until then.
func takeUntil(end time.Time, c *dlock.Client, n int, taken func(i int, l *dlock.Lease)) (asked, failed int) {
	var mu sync.Mutex
	each(n, takers, func(i int) {
		if time.Now().After(end) {
			return
		}
		l, err := c.Mutex(strconv.Itoa(i)).Lock(background)
		mu.Lock()
		asked++
		if err != nil {
			failed++
		}
		mu.Unlock()
		if err == nil {
			taken(i, l)
		}
	})
	return asked, failed
}

// part closes c, which may be cut off.
func part(c *dlock.Client) {
	ctx, cancel := context.WithTimeout(background, 2*time.Second)
	defer cancel()
	_ = c.Close(ctx)
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
