package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// PrimaryName is what sentinels call the primary that they watch.
const PrimaryName = "mymaster"

// A Sentinel watches one primary, and with others puts a replica in its place.
type Sentinel struct {
	Binary    string        // path of redis-server; empty looks for one
	Primary   string        // address of the primary
	Quorum    int           // how many must miss it
	DownAfter time.Duration // how long it must have been silent
	Config    []string      // more lines for the configuration file
}

func (Sentinel) name() string { return "sentinel" }

// command writes the configuration once: the sentinel keeps what it knows in it.
func (s Sentinel) command(dir string, port int) (*exec.Cmd, error) {
	binary, err := Redis{Binary: s.Binary}.binary()
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "sentinel.conf")
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		if err := os.WriteFile(path, []byte(s.config(dir, port)), 0o600); err != nil {
			return nil, err
		}
	}
	return exec.Command(binary, path, "--sentinel"), nil
}

func (s Sentinel) config(dir string, port int) string {
	host, primary, _ := net.SplitHostPort(s.Primary)
	down := s.DownAfter.Milliseconds()
	lines := []string{
		"bind 127.0.0.1",
		"port " + strconv.Itoa(port),
		"dir " + dir,
		fmt.Sprintf("sentinel monitor %s %s %s %d", PrimaryName, host, primary, s.Quorum),
		fmt.Sprintf("sentinel down-after-milliseconds %s %d", PrimaryName, down),
		fmt.Sprintf("sentinel failover-timeout %s %d", PrimaryName, max(5*down, 5000)),
	}
	return strings.Join(append(lines, s.Config...), "\n") + "\n"
}

func (Sentinel) probe(ctx context.Context, addr string) error { return Redis{}.probe(ctx, addr) }

func (s Sentinel) version(ctx context.Context, addr string) (string, error) {
	return Redis{Binary: s.Binary}.version(ctx, addr)
}

func (Sentinel) shutdown() syscall.Signal { return syscall.SIGTERM }

// A Watched is a primary, its replicas and three sentinels.
type Watched struct {
	*Replicated
	Sentinels []*Server
}

// StartWatched runs a primary, n replicas and the sentinels for one test. They
// replace a primary that has been silent for downAfter.
func StartWatched(t testing.TB, n int, kind Redis, downAfter time.Duration) *Watched {
	t.Helper()
	w, err := NewWatched(n, kind, downAfter)
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, w)
	return w
}

// NewWatched returns when every sentinel knows the others and all replicas.
func NewWatched(n int, kind Redis, downAfter time.Duration) (*Watched, error) {
	r, err := NewReplicated(n, kind)
	if err != nil {
		return nil, err
	}
	w := &Watched{Replicated: r}
	w.Sentinels, err = newGroup(Copies(sentinels, Sentinel{
		Binary: kind.Binary, Primary: r.Primary.Addr(), Quorum: sentinels/2 + 1, DownAfter: downAfter,
	})...)
	if err == nil {
		err = await(w.ready)
	}
	if err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

const sentinels = 3

// Close ends all of them, the sentinels first: there is nothing left to watch.
func (w *Watched) Close() error {
	return errors.Join(group(w.Sentinels).Close(), w.Replicated.Close())
}

// ready fails until each sentinel knows all there is to know.
func (w *Watched) ready(ctx context.Context) error {
	w.hurry(ctx, "publish-period 100 info-period 200")
	for _, s := range w.Sentinels {
		known, err := redisCommand(ctx, s.Addr(), "SENTINEL MASTER "+PrimaryName)
		if err != nil {
			return err
		}
		if n := bulkAfter(known, "num-slaves"); n != strconv.Itoa(len(w.Replicas)) {
			return fmt.Errorf("a sentinel knows %s replicas", n)
		}
		if n := bulkAfter(known, "num-other-sentinels"); n != strconv.Itoa(sentinels-1) {
			return fmt.Errorf("a sentinel knows %s others", n)
		}
	}
	// They greet less often from now on: one that has not heard of a failover
	// for four of these periods undoes it.
	w.hurry(ctx, "publish-period 2000 info-period 500 tilt-period 1000")
	return nil
}

// hurry has sentinels do things more often than in production, and rest for
// less than 30 s after a hiccup. One that is too old for this takes its time.
func (w *Watched) hurry(ctx context.Context, periods string) {
	for _, s := range w.Sentinels {
		_, _ = redisCommand(ctx, s.Addr(), "SENTINEL DEBUG "+periods)
	}
}

// bulkAfter is the string of a reply that follows the given one.
func bulkAfter(reply, field string) string {
	_, rest, _ := strings.Cut(reply, "\r\n"+field+"\r\n")
	_, rest, _ = strings.Cut(rest, "\r\n")
	value, _, _ := strings.Cut(rest, "\r\n")
	return value
}
