package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/spf13/cobra"
	"golang.org/x/term"
)

const (
	// maxWatched is how many locks one screen shows, and dlock asks for each second.
	maxWatched = 40

	// looksAtOnce is how many of them it asks for at a time: each of many waiters or readers
	// may take a twentieth of the server.
	looksAtOnce = 4

	watchInterval = time.Second
)

func newWatch(std stdio) *cobra.Command {
	w := &watch{last: make(map[string]look)}
	c := newQuery(std, "watch [NAME|PREFIX]", "Show once a second who holds locks",
		fmt.Sprintf("Show once a second who holds the locks that begin with PREFIX, for how long, how many\nwait, and at how many looks the lock had changed hands: %d locks at most. INT ends it. A\nbackend that does not answer is asked again; one that denies a list of names, or has none, shows\nthe lock NAME alone.", maxWatched),
		cobra.MaximumNArgs(1), func(ctx context.Context, q *query, c *dlock.Client, args []string) error {
			w.query = q
			return w.run(ctx, c, strings.Join(args, ""))
		})
	c.Flags().UintVarP(&w.count, "count", "n", 0, "how many `looks` there are; 0: no end")
	return c
}

// A watch looks at locks again and again.
type watch struct {
	*query
	count uint
	looks uint // so far
	last  map[string]look
}

// A look is what a watch has seen of one lock.
type look struct {
	holds   []string // as holdOf tells them apart
	looks   uint     // at this lock
	changes uint     // looks at which none of the holders was one at the look before
}

func (w *watch) run(ctx context.Context, c *dlock.Client, prefix string) error {
	for {
		err := w.showLocks(ctx, c, prefix)
		if err != nil {
			if !errors.Is(err, dlock.ErrUnavailable) || ctx.Err() != nil {
				return err
			}
			w.showError(err)
		}
		if w.looks++; w.looks == w.count {
			return err
		}
		if !backend.Sleep(ctx, watchInterval) {
			return nil
		}
	}
}

// showError shows in place of the locks why they are not known. The last look's is shown
// as dlock ends.
func (w *watch) showError(err error) {
	switch {
	case w.looks+1 == w.count:
	case !w.json && term.IsTerminal(int(w.std.out.Fd())):
		var b strings.Builder
		complain(&b, err)
		_, _ = io.WriteString(w.std.out, clearScreen+fitted(b.String(), w.std.out))
	default:
		complain(w.std.err, err)
	}
}

// showLocks prints the locks that begin with prefix, once.
func (w *watch) showLocks(ctx context.Context, c *dlock.Client, prefix string) error {
	names, more, err := someNames(ctx, c, prefix, maxWatched)
	unlisted := errors.Is(err, dlock.ErrUnsupported) || errors.Is(err, dlock.ErrAuth)
	if unlisted && prefix != "" {
		names, err = []string{prefix}, nil
	}
	if err != nil {
		return err
	}
	seen := make(map[string]look, len(names))
	var b strings.Builder
	var t table
	t.add("NAME", "HOLDER", "MODE", "FOR", "WAITERS", "CHANGED")
	snapshots, err := inspectAll(ctx, c, names)
	if err != nil {
		return err
	}
	for i, name := range names {
		s := snapshots[i]
		seen[name] = w.last[name].next(s)
		t.addLock(name, s, seen[name])
		if err := printJSON(&b, newSnapshot(name, s)); err != nil {
			return err
		}
	}
	w.last = seen
	if w.json {
		_, err = io.WriteString(w.std.out, b.String())
		return err
	}
	note := ""
	switch {
	case unlisted:
		note = "the backend does not list names: this is the lock of that whole name\n"
	case more:
		note = fmt.Sprintf("and more than these %d: a longer PREFIX shows others\n", maxWatched)
	}
	return t.show(w.std.out, note)
}

// inspectAll looks at locks, some of them at once: the way to a server may be long.
func inspectAll(ctx context.Context, c *dlock.Client, names []string) ([]dlock.Snapshot, error) {
	snapshots, errs := make([]dlock.Snapshot, len(names)), make([]error, len(names))
	var positions []int
	for i := range names {
		positions = append(positions, i)
	}
	backend.ForEachPart(positions, 1, looksAtOnce, func(one []int) {
		i := one[0]
		snapshots[i], errs[i] = c.Inspect(ctx, names[i])
	})
	return snapshots, cmp.Or(errs...)
}

// clearScreen has a terminal begin again at the top.
const clearScreen = "\x1b[H\x1b[2J"

// show prints the locks and a note, and makes them fit if out is a terminal.
func (t *table) show(out *os.File, note string) error {
	terminal := term.IsTerminal(int(out.Fd()))
	if width, _, err := term.GetSize(int(out.Fd())); terminal && err == nil && width > 0 {
		t.fit(width, leastWatched, "MODE", "CHANGED", "HOLDER")
	}
	var b strings.Builder
	_ = t.write(&b) // to memory
	if len(t.rows) == 1 {
		b.WriteString("no such lock is held or waited for\n")
	}
	b.WriteString(note)
	text := b.String()
	if terminal {
		text = clearScreen + fitted(text, out)
	}
	_, err := io.WriteString(out, text)
	return err
}

// leastWatched are the columns that can be shortened, and how far.
var leastWatched = map[string]int{"NAME": 11, "HOLDER": 9}

// fitted cuts lines, and how many there are, to the size of the terminal: what does not
// fit would scroll away what does.
func fitted(text string, terminal *os.File) string {
	width, height, err := term.GetSize(int(terminal.Fd()))
	if err != nil || width <= 0 || height <= 1 {
		return text
	}
	var b strings.Builder
	n := 0
	for line := range strings.Lines(text) {
		if n++; n == height {
			break // the cursor stands there
		}
		if text := strings.TrimSuffix(line, "\n"); cells(text) > width {
			line = cut(text, width-1) + "…\n"
		}
		b.WriteString(line)
	}
	return b.String()
}

// next returns l after one more look.
func (l look) next(s dlock.Snapshot) look {
	var holds []string
	for _, h := range s.Holders {
		holds = append(holds, holdOf(h))
	}
	known := func(hold string) bool { return slices.Contains(l.holds, hold) }
	if l.looks > 0 && len(holds) > 0 && !slices.ContainsFunc(holds, known) {
		l.changes++
	}
	l.holds = holds
	l.looks++
	return l
}

// holdOf tells one hold from another: by its token or, where the server knows none, by its client.
func holdOf(h dlock.Party) string {
	if h.Token > 0 {
		return fmt.Sprint(h.Token)
	}
	return h.Client
}

// addLock adds a row for a lock: of several readers the first, and how many there are.
func (t *table) addLock(name string, s dlock.Snapshot, l look) {
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
	t.add(asTyped(name), orDash(printable(holder)), orDash(mode), orDash(held),
		strconv.Itoa(len(s.Waiters)), fmt.Sprintf("%d of %d", l.changes, l.looks-1))
}
