package etcd_test

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/server"
)

// A syncBuffer takes what several goroutines write.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// TestWarnsOfTheVersion opens a client of the distribution's etcd, which is 3.4.23.
func TestWarnsOfTheVersion(t *testing.T) {
	s := server.Start(t, server.Etcd{Distribution: true})
	var log syncBuffer
	c, err := dlock.Open(timed(t), "etcd://"+s.Addr(), &dlock.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	must(t, err)
	defer c.Close(timed(t))
	eventually(t, "a warning of "+s.Version(), func() bool {
		return strings.Contains(log.String(), s.Version()) && strings.Contains(log.String(), "#15247")
	})
}
