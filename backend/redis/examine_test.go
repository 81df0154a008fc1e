package redis

import (
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
)

func TestMemoryLoss(t *testing.T) {
	config := func(log, sync string) map[string]string {
		return map[string]string{"appendonly": log, "appendfsync": sync, "no-appendfsync-on-rewrite": "no"}
	}
	mayNot := config("yes", "always")
	mayNot["no-appendfsync-on-rewrite"] = "yes"
	for _, c := range []struct {
		config   map[string]string
		save     string
		err      error
		warnings int
	}{
		{config("no", "everysec"), "", nil, 0},
		{config("no", "everysec"), "3600 1", nil, 2},
		{config("yes", "everysec"), "", nil, 2},
		{config("yes", "no"), "3600 1", nil, 3},
		{config("yes", "always"), "3600 1", nil, 0},
		{mayNot, "", nil, 2},
		{mayNot, "3600 1", nil, 3},
		{nil, "", errors.New("no permission"), 1},
	} {
		if got := memoryLoss(c.config, c.save, c.err); len(got) != c.warnings {
			t.Errorf("%v, %q, %v: %q", c.config, c.save, c.err, got)
		}
	}
}

// warnings collects what a backend complains of.
type warnings struct {
	mu   sync.Mutex
	text strings.Builder
}

func (w *warnings) logger() *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }

func (w *warnings) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(b)
}

func (w *warnings) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}
