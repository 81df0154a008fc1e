package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/spf13/cobra"
	"golang.org/x/term"
)

const (
	// maxWatched is how many locks one screen shows, and dlock asks for each second.
	maxWatched = 40

	watchInterval = time.Second
)

func newWatch(std stdio) *cobra.Command {
	return newQuery(std, "watch NAME|PREFIX", "Show once a second who holds locks",
		fmt.Sprintf("Show once a second who holds the locks that begin with PREFIX, for how long, and how\nmany wait: %d locks at most. INT ends it.", maxWatched),
		cobra.MaximumNArgs(1), func(ctx context.Context, q *query, c *dlock.Client, args []string) error {
			for {
				if err := q.showLocks(ctx, c, strings.Join(args, "")); err != nil {
					return err
				}
				if !backend.Sleep(ctx, watchInterval) {
					return nil
				}
			}
		})
}

// showLocks prints the locks that begin with prefix, once.
func (q *query) showLocks(ctx context.Context, c *dlock.Client, prefix string) error {
	names, more, err := someNames(ctx, c, prefix, maxWatched)
	if errors.Is(err, dlock.ErrUnsupported) && prefix != "" { // such a backend knows a lock by its whole name only
		names, err = []string{prefix}, nil
	}
	if err != nil {
		return err
	}
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	if !q.json {
		fmt.Fprintln(t, "NAME\tHOLDER\tMODE\tFOR\tWAITERS")
	}
	for _, name := range names {
		s, err := c.Inspect(ctx, name)
		if err != nil {
			return err
		}
		if q.json {
			err = printJSON(&b, newSnapshot(name, s))
		} else {
			printLock(t, name, s)
		}
		if err != nil {
			return err
		}
	}
	_ = t.Flush() // to memory
	if more && !q.json {
		b.WriteString("and more\n")
	}
	if term.IsTerminal(int(q.std.out.Fd())) && !q.json {
		_, err = fmt.Fprint(q.std.out, "\x1b[H\x1b[2J")
	}
	if err == nil {
		_, err = io.WriteString(q.std.out, b.String())
	}
	return err
}

// printLock prints a lock on one line: of several readers the first, and how many more.
func printLock(w io.Writer, name string, s dlock.Snapshot) {
	holder, mode, held := "", "", ""
	if len(s.Holders) > 0 {
		first := s.Holders[0]
		holder, mode, held = first.Label, first.Mode.String(), age(first)
		if holder == "" {
			holder = shortClient(first)
		}
		if n := len(s.Holders); n > 1 {
			mode += fmt.Sprintf(" (%d)", n)
		}
	}
	fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\n", printable(name), orDash(printable(holder)), orDash(mode), orDash(held), len(s.Waiters))
}
