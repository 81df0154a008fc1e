package etcd

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/grpclog"
)

// gRPC has one logger for all connections of the process, and does not tell it of which a
// line is. By default it writes errors to stderr. While a client that Open has made has a
// logger, they go there.

func init() {
	for _, asked := range []string{"GRPC_GO_LOG_SEVERITY_LEVEL", "GRPC_GO_LOG_VERBOSITY_LEVEL", "GRPC_GO_LOG_FORMATTER", "ETCD_CLIENT_DEBUG"} {
		if os.Getenv(asked) != "" {
			return // somebody wants to read gRPC's log
		}
	}
	grpclog.SetLoggerV2(grpcLog{grpclog.NewLoggerV2(io.Discard, io.Discard, os.Stderr)})
}

// A grpcLog has errors go to the loggers of clients, and where gRPC logs by itself if there
// are none.
type grpcLog struct{ grpclog.LoggerV2 }

// Error implements grpclog.LoggerV2.
func (l grpcLog) Error(args ...any) { l.Errorln(args...) }

// Errorf implements grpclog.LoggerV2.
func (l grpcLog) Errorf(format string, args ...any) { l.Errorln(fmt.Sprintf(format, args...)) }

// Errorln implements grpclog.LoggerV2.
func (l grpcLog) Errorln(args ...any) {
	if line := strings.TrimSpace(fmt.Sprintln(args...)); !listeners.log(line) {
		l.LoggerV2.Errorln(line)
	}
}

// listeners are the loggers of clients that Open has made.
var listeners loggers

// loggers counts for how many clients each is there.
type loggers struct {
	mu   sync.Mutex
	all  map[*slog.Logger]int
	left time.Time // when a client was last closed
}

// lateLines is how long after the last client was closed nobody is told what gRPC logs: a
// connection may still have something to say, and its logger is not there for that any more.
const lateLines = time.Second

// add has l be told until remove is called.
func (s *loggers) add(l *slog.Logger) (remove func()) {
	if l == nil || !l.Enabled(context.Background(), slog.LevelWarn) {
		return func() {}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = make(map[*slog.Logger]int)
	}
	s.all[l]++
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.left = time.Now()
		if s.all[l]--; s.all[l] == 0 {
			delete(s.all, l)
		}
	})
}

// log tells each logger. It reports false if the line is not of clients that have one.
func (s *loggers) log(line string) bool {
	s.mu.Lock()
	var all []*slog.Logger
	for l := range s.all {
		all = append(all, l)
	}
	ours := len(all) > 0 || time.Since(s.left) < lateLines
	s.mu.Unlock()
	for _, l := range all {
		l.Warn("dlock: grpc: " + line)
	}
	return ours
}
