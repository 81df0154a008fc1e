package redis

import (
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/dlock-go/dlock/backend"
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
		{config("no", "everysec"), "3600 1", nil, 1},
		{config("yes", "everysec"), "", nil, 1},
		{config("yes", "no"), "3600 1", nil, 2},
		{config("yes", "always"), "3600 1", nil, 0},
		{mayNot, "", nil, 1},
		{mayNot, "3600 1", nil, 2},
		{nil, "", errors.New("no permission"), 1},
	} {
		warnings := 0
		for _, f := range memoryLoss(c.config, c.save, c.err) {
			if f.Level > backend.OK {
				warnings++
			}
		}
		if warnings != c.warnings {
			t.Errorf("%v, %q, %v: %d warnings", c.config, c.save, c.err, warnings)
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
