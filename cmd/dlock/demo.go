package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/spf13/cobra"
)

const demoHelp = `Show what a lock is for: several processes sell from one stock that is kept in
a plain file, first without a lock, then with one. Succeeds if the first round
sells more than there is and the second does not.`

const story = `There are %d tickets and %d workers, each a process of its own. To sell one, a
worker reads from a file how many are left, thinks, and writes one less.

`

const moral = `
Without a lock workers sell the same ticket twice; with it nobody does.
Try it on a command of yours: dlock run my-job -- sleep 5
`

// A demo is what dlock demo is told.
type demo struct {
	std     stdio
	url     string
	dir     string
	lock    string
	workers int
	stock   int
}

func newDemo(std stdio) *cobra.Command {
	d := &demo{std: std}
	c := &cobra.Command{
		Use:   "demo",
		Short: "Show what goes wrong without a lock",
		Long:  demoHelp,
		Args:  noArguments,
		RunE:  func(*cobra.Command, []string) error { return d.run() },
	}
	backendFlag(c, &d.url, "a temporary directory")
	c.Flags().IntVar(&d.workers, "workers", 4, "number of processes")
	c.Flags().IntVar(&d.stock, "sales", 2000, "how many there are to sell in each round")
	return c
}

func (d *demo) run() error {
	if d.workers < 2 || d.stock < 1 {
		return usageError(errors.New("want at least 2 --workers and 1 of the --sales"))
	}
	signals := catch(ending...)
	ctx, stop := untilEnding(signals)
	defer stop()
	var err error
	if d.dir, err = os.MkdirTemp("", "dlock-demo-"); err != nil {
		return err
	}
	defer os.RemoveAll(d.dir)
	if err = d.show(ctx); ended(ctx) != nil {
		return ended(ctx)
	}
	return err
}

func (d *demo) show(ctx context.Context) error {
	if err := d.prepare(ctx); err != nil {
		return err
	}
	fmt.Fprintf(d.std.out, story, d.stock, d.workers)
	without, err := d.round(ctx, "without lock", "")
	if err != nil {
		return err
	}
	with, err := d.round(ctx, "with lock", d.lock)
	if err != nil {
		return err
	}
	printTable(d.std.out, without, with)
	switch {
	case with.oversold != 0:
		return errors.New("oversold in spite of the lock")
	case without.oversold <= 0:
		return errors.New("not oversold without the lock: try more --workers or --sales")
	}
	fmt.Fprint(d.std.out, moral)
	return nil
}

// prepare chooses the backend, and finds out whether it is there at all.
func (d *demo) prepare(ctx context.Context) error {
	d.lock = filepath.Base(d.dir) // its own, so that two demos do not disturb each other
	locks := filepath.Join(d.dir, "locks")
	if err := os.Mkdir(locks, 0o700); err != nil {
		return err
	}
	d.url = backendURL(d.url, fileURL(locks))
	client, err := openClient(ctx, d.url, dlock.Options{})
	if err != nil {
		return err
	}
	closeClient(client)
	return nil
}

// fileURL returns the URL of a directory, which is file:///C:/dir for C:\dir.
func fileURL(path string) string {
	u := url.URL{Scheme: "file", Path: "/" + strings.TrimPrefix(filepath.ToSlash(path), "/")}
	return strings.ReplaceAll(u.String(), "@", "%40") // which would look like the end of a password
}

// round has the workers sell the whole stock, with the lock of that name.
func (d *demo) round(ctx context.Context, title, lock string) (*result, error) {
	s, err := createStock(filepath.Join(d.dir, title), d.stock)
	if err != nil {
		return nil, err
	}
	defer s.close()
	all, err := d.startWorkers(ctx, s, lock)
	if err != nil {
		return nil, err
	}
	start := all.open()
	stop := showProgress(d.std.out, title, func() float64 { return s.progress(d.stock) })
	err = all.wait()
	stop()
	if err != nil {
		return nil, err
	}
	return d.tally(s, title, lock != "", time.Since(start))
}
