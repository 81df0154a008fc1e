package backend

import (
	"context"
	"time"
)

// MaxRest is for how long Rest pauses at most where nothing else bounds it: much of what a
// page takes may be the way to the server.
const MaxRest = 50 * time.Millisecond

// restShare is how many times as long a pause is as the page before it took.
const restShare = 19

// Rest pauses between the pages of a long answer, so that others get the server: 19 times
// as long as the last page took, but no longer than most. Whoever asks then uses no more
// than a twentieth of the server's time. WithRests makes both longer. Rest returns how long it
// has paused, and tells WithProgress that an answer has come.
func Rest(ctx context.Context, took, most time.Duration) time.Duration {
	Progress(ctx)
	pause := time.Duration(restsOf(ctx)) * max(min(restShare*took, most), 0)
	Sleep(ctx, pause)
	return pause
}

// Progress tells WithProgress that an answer has come, where no pause follows: another page or another server is next,
// or a request for a lock that had to be made in two steps.
func Progress(ctx context.Context) {
	if f, ok := ctx.Value(progressKey{}).(func()); ok {
		f()
	}
}

// WithProgress returns ctx for a question that a server answers in pages: Rest calls f after
// each, so that whoever has a limit for an answer can begin it anew. It calls what ctx says
// already before.
func WithProgress(ctx context.Context, f func()) context.Context {
	outer, ok := ctx.Value(progressKey{}).(func())
	if !ok {
		return context.WithValue(ctx, progressKey{}, f)
	}
	return context.WithValue(ctx, progressKey{}, func() { outer(); f() })
}

type progressKey struct{}

// WithRests returns ctx for a question in which each pause of Rest is so many times as long:
// where others wait for several servers at once, any of those may be the one that is asked.
// What ctx says already is multiplied.
func WithRests(ctx context.Context, times int) context.Context {
	return context.WithValue(ctx, restsKey{}, times*restsOf(ctx))
}

func restsOf(ctx context.Context) int {
	if times, ok := ctx.Value(restsKey{}).(int); ok {
		return times
	}
	return 1
}

type restsKey struct{}
