package redis

import (
	"log/slog"
	"strings"
	"sync"
)

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
