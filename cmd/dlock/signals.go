package main

import (
	"context"
	"os"
	"os/signal"
	"slices"
	"syscall"
)

// ending are the signals that ask a process to end.
var ending = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}

// catch returns a channel of those signals among sigs that the parent of dlock
// has not had it ignore, as nohup does: the command is to ignore them too.
func catch(sigs ...os.Signal) chan os.Signal {
	caught := make(chan os.Signal, 16)
	for _, s := range sigs {
		if !signal.Ignored(s) {
			signal.Notify(caught, s)
		}
	}
	return caught
}

// untilEnding returns a context that ends with an exitStatus as its cause when
// an ending signal comes. Other signals are dropped. Once stop has returned,
// nothing more is taken from signals.
func untilEnding(signals <-chan os.Signal) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case s := <-signals:
				if slices.Contains(ending, s) {
					cancel(bySignal(s))
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return ctx, func() { cancel(nil); <-stopped }
}

func bySignal(s os.Signal) exitStatus { return exitStatus(exitSignal + int(s.(syscall.Signal))) }

// ended returns the exitStatus that ctx ended with, if it did.
func ended(ctx context.Context) error {
	if status, ok := context.Cause(ctx).(exitStatus); ok {
		return status
	}
	return nil
}
