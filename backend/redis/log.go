package redis

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"os"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/backend"
)

// The client library has one logger for all clients of the process. It tells that logger
// of a client by a context that has passed the client's hooks, and by the errors of the
// client's dialer: both carry the logger of the client.

func init() { redis.SetLogger(driverLog{log.New(os.Stderr, "redis: ", log.LstdFlags|log.Lshortfile)}) }

// A driverLog has lines about a client that Open has made go to the client's logger, and
// others to where the client library logs by itself.
type driverLog struct{ others *log.Logger }

// Printf implements the client library's logger. That a Sentinel refuses this client is told
// to no caller as long as another answers.
func (d driverLog) Printf(ctx context.Context, format string, args ...any) {
	l, ok := ctx.Value(loggerKey{}).(*slog.Logger)
	level := slog.LevelDebug
	for _, arg := range args {
		err, isErr := arg.(error)
		if !isErr {
			continue
		}
		var dial *dialError
		if errors.As(err, &dial) {
			l, ok = dial.log, true
		}
		if strings.HasPrefix(format, "sentinel:") && kindOf(err) == backend.ErrAuth {
			level = slog.LevelWarn
		}
	}
	text := withoutArguments(fmt.Sprintf(format, args...))
	if !ok || l == nil {
		_ = d.others.Output(3, text) // the line that has called the library's Printf
		return
	}
	if l.Enabled(ctx, level) {
		l.Log(ctx, level, "dlock: redis: "+text)
	}
}

type loggerKey struct{}

// A dialError is what the dialer of a client has failed with.
type dialError struct {
	error
	log *slog.Logger
}

// Unwrap returns what went wrong.
func (e *dialError) Unwrap() error { return e.error }

// withLogger has errors of dial carry l.
func withLogger(dial dialer, l *slog.Logger) dialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, &dialError{err, l}
		}
		return conn, nil
	}
}

// A logHook has the contexts of requests, and of dials that first ask a Sentinel for the
// master, carry the logger.
type logHook struct{ log *slog.Logger }

// DialHook implements redis.Hook.
func (h logHook) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := next(context.WithValue(ctx, loggerKey{}, h.log), network, addr)
		if err != nil { // perhaps what a Sentinel has said, which came from no dialer
			return nil, &dialError{err, h.log}
		}
		return conn, nil
	}
}

// ProcessHook implements redis.Hook.
func (h logHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return next(context.WithValue(ctx, loggerKey{}, h.log), cmd)
	}
}

// ProcessPipelineHook implements redis.Hook.
func (h logHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return next(context.WithValue(ctx, loggerKey{}, h.log), cmds)
	}
}
