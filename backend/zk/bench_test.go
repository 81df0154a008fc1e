package zk_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	gozk "github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/backend/zk"
	"github.com/dlock-go/dlock/internal/faultnet"
	"github.com/dlock-go/dlock/internal/inturn"
	"github.com/dlock-go/dlock/internal/server"
)

// A rival is a way to take and give back the lock at path, on one connection.
type rival struct {
	name string
	open func(b *testing.B, addr, path string) (cycle func() error)
}

func driver(b *testing.B, addr string) *gozk.Conn {
	conn, _, err := gozk.Connect([]string{addr}, time.Minute, gozk.WithLogInfo(false), gozk.WithLogger(quiet{}))
	must(b, err)
	b.Cleanup(conn.Close)
	return conn
}

var rivals = []rival{
	{"dlock", func(b *testing.B, addr, path string) func() error {
		m := connect(b, &zk.Options{Root: path, SessionTimeout: time.Minute}, addr).Mutex("m")
		ctx := context.Background()
		return func() error {
			lease, err := m.Lock(ctx)
			if err != nil {
				return err
			}
			return lease.Unlock(ctx)
		}
	}},
	{"zk.Lock", func(b *testing.B, addr, path string) func() error {
		l := gozk.NewLock(driver(b, addr), path, gozk.WorldACL(gozk.PermAll))
		return func() error {
			if err := l.Lock(); err != nil {
				return err
			}
			return l.Unlock()
		}
	}},
}

// floor is what no lock can do without: a node is made and deleted.
var floor = rival{"floor", func(b *testing.B, addr, path string) func() error {
	conn := driver(b, addr)
	_, err := conn.Create(path, nil, gozk.FlagPersistent, gozk.WorldACL(gozk.PermAll))
	must(b, err)
	return func() error {
		made, err := conn.Create(path+"/n-", nil, gozk.FlagEphemeralSequential, gozk.WorldACL(gozk.PermAll))
		if err != nil {
			return err
		}
		return conn.Delete(made, -1)
	}
}}

// distances are the round trips to the server, beside what this machine takes.
var distances = []time.Duration{0, time.Millisecond, 30 * time.Millisecond}

// away returns where addr can be reached after a round trip more.
func away(b *testing.B, addr string, roundTrip time.Duration) string {
	if roundTrip == 0 {
		return addr
	}
	p := proxyTo(b, addr)
	p.Delay(faultnet.BothWays, roundTrip/2, 0)
	return p.Addr()
}

// BenchmarkFree takes and gives back a lock that nobody else wants.
func BenchmarkFree(b *testing.B) {
	s := server.Start(b, kind)
	for _, d := range distances {
		b.Run(d.String(), func(b *testing.B) {
			var all []inturn.Rival
			for _, r := range append(rivals, floor) {
				cycle := r.open(b, away(b, s.Addr(), d), fmt.Sprint("/", r.name, d, b.N))
				all = append(all, inturn.Rival{Name: r.name, Run: func() { must(b, cycle()) }})
			}
			inturn.Compare(b, all...)
		})
	}
}

// BenchmarkContended has sixteen clients hand one lock round.
func BenchmarkContended(b *testing.B) {
	const clients, cycles = 16, 4
	s := server.Start(b, kind)
	for _, d := range distances {
		b.Run(d.String(), func(b *testing.B) {
			var all []inturn.Rival
			for _, r := range rivals {
				var each []func() error
				for range clients {
					each = append(each, r.open(b, away(b, s.Addr(), d), fmt.Sprint("/", r.name, d, b.N)))
				}
				all = append(all, inturn.Rival{Name: r.name, Run: func() {
					var wg sync.WaitGroup
					for _, cycle := range each {
						wg.Go(func() {
							for range cycles {
								if err := cycle(); err != nil {
									b.Error(err)
								}
							}
						})
					}
					wg.Wait()
				}})
			}
			inturn.Compare(b, all...)
		})
	}
}
