package changeover

import (
	"context"
	"path"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	_ "github.com/dlock-go/dlock/backend/memory"
)

// A lock of another client on the same memory stands for the old one.
func versions(t *testing.T) Versions {
	t.Helper()
	under := func(client *dlock.Client, prefix string) Program {
		return func(ctx context.Context, name string, work func(context.Context) error) error {
			return dlock.Do(ctx, client.Mutex(prefix+name), func(ctx context.Context, _ *dlock.Lease) error {
				return work(ctx)
			})
		}
	}
	url := "memory://" + path.Base(t.Name())
	v := Versions{New: Open(t, url)}
	v.TakeOld = func(ctx context.Context, name string) error { return v.breakNew(ctx, "old "+name) }
	for i := range 2 {
		client := Open(t, url)
		v.Before[i], v.After[i] = under(client, "old "), under(client, "")
		v.Both[i] = nested(v.After[i], v.Before[i])
	}
	return v
}

// nested takes the lock of the outer program, and then that of the inner one.
func nested(outer, inner Program) Program {
	return func(ctx context.Context, name string, work func(context.Context) error) error {
		return outer(ctx, name, func(ctx context.Context) error { return inner(ctx, name, work) })
	}
}

// deaf runs the work with a context that tells it of no loss.
func deaf(p Program) Program {
	return func(ctx context.Context, name string, work func(context.Context) error) error {
		return p(ctx, name, func(context.Context) error { return work(ctx) })
	}
}

func TestCheck(t *testing.T) {
	if err := versions(t).Check(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Each of these faults is found.
func TestCheckFindsFaults(t *testing.T) {
	for name, spoil := range map[string]func(*Versions){
		"both without the old lock": func(v *Versions) { v.Both = v.After },
		"both without the new lock": func(v *Versions) { v.Both = v.Before },
		"before without a lock": func(v *Versions) {
			for i := range v.Before {
				v.Before[i] = func(ctx context.Context, _ string, work func(context.Context) error) error { return work(ctx) }
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := versions(t)
			spoil(&v)
			if err := v.pairs(t.Context()); err == nil {
				t.Error("pairs finds nothing")
			}
			before, after := v.Before, v.After
			if contend(t.Context(), "both with before", before[0], v.Both[0], before[1], v.Both[1]) == nil &&
				contend(t.Context(), "both with after", after[0], v.Both[0], after[1], v.Both[1]) == nil {
				t.Error("contend finds nothing")
			}
		})
	}
}

// A version in between that does not tell its work of a loss is found out.
func TestCheckFindsSilence(t *testing.T) {
	v := versions(t)
	v.Both[0] = deaf(v.Both[0])
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := v.losses(ctx); err == nil {
		t.Error("losses finds nothing")
	}
}

func TestUnaware(t *testing.T) {
	v := versions(t)
	if err := Unaware(t.Context(), v.Both[0], v.TakeOld); err != nil {
		t.Error(err)
	}
	if err := Unaware(t.Context(), v.After[0], func(context.Context, string) error { return nil }); err == nil {
		t.Error("a program that returns nil is not found out")
	}
}
