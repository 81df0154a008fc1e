package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
)

const benchHelp = `Measure locks on servers of your own, to choose a backend: how many there are
in a second, how fast a lock goes from one to the next, how fair that is, and
what it costs to hold locks and to wait for them.

Figures are those of this machine, the network between, and the servers, which
are under load meanwhile. Compare backends in one run. A URL that holds a
password belongs in DLOCK_URL: other users can see the arguments of a process.

All locks have names of their own, below "dlock-bench/", and are given back at
the end, also after an interruption.

`

// benchOptions are the flags of dlock bench.
type benchOptions struct {
	std      stdio
	backends []string
	json     bool
	page     string
	size     benchSize
}

// A benchSize is how much is done on each backend.
type benchSize struct {
	Time       time.Duration // of one measurement
	Goroutines int           // with a lock each
	Clients    int           // that want the same lock
	Held       int           // locks
	Waiting    int           // goroutines
}

func newBench(std stdio) *cobra.Command {
	o := &benchOptions{std: std}
	c := &cobra.Command{
		Use:   "bench [flags]",
		Short: "Measure backends on your own servers",
		Long:  benchHelp + exitHelp(false),
		Args:  noArguments,
		RunE:  func(*cobra.Command, []string) error { return o.run() },
	}
	f := c.Flags()
	f.StringArrayVar(&o.backends, "backend", nil, "`URL` of a backend; several are compared (default $"+urlVariable+" or else files of this user)")
	f.BoolVar(&o.json, "json", false, "print all figures as JSON")
	f.StringVar(&o.page, "html", "", "write a page with charts to `FILE`")
	f.DurationVar(&o.size.Time, "time", 2*time.Second, "`duration` of each measurement")
	f.IntVar(&o.size.Goroutines, "goroutines", 64, "goroutines with a lock each")
	f.IntVar(&o.size.Clients, "clients", 16, "clients that want the same lock")
	f.IntVar(&o.size.Held, "held", 1000, "locks to hold at the same time")
	f.IntVar(&o.size.Waiting, "waiting", 200, "goroutines to wait for one lock")
	return c
}

func (o *benchOptions) check() error {
	s := o.size
	if s.Time <= 0 || s.Goroutines < 1 || s.Clients < 1 || s.Held < 1 || s.Waiting < 1 {
		return usageError(errors.New("--time, --goroutines, --clients, --held and --waiting must be positive"))
	}
	return nil
}

func (o *benchOptions) run() error {
	if err := o.check(); err != nil {
		return err
	}
	page, err := o.openPage()
	if err != nil {
		return err
	}
	defer page.Close()
	signals := catch(ending...)
	ctx, stop := untilEnding(signals)
	defer stop()
	report, err := o.measure(ctx)
	if ended(ctx) != nil {
		return ended(ctx)
	}
	if err != nil {
		return err
	}
	return o.tell(report, page)
}

// openPage finds out before anything is measured whether the page can be
// written. What was there stays until there is something to replace it.
func (o *benchOptions) openPage() (*os.File, error) {
	if o.page == "" {
		return nil, nil
	}
	return os.OpenFile(o.page, os.O_WRONLY|os.O_CREATE, 0o666)
}

// measure finds out first whether all backends can be used at all.
func (o *benchOptions) measure(ctx context.Context) (r *benchReport, err error) {
	urls := o.backends
	if len(urls) == 0 {
		urls = []string{backendURL("", defaultURL)}
	}
	var all []*benchTarget
	defer func() {
		for _, s := range all {
			err = errors.Join(err, s.remove())
		}
	}()
	for _, url := range urls {
		s, err := newBenchTarget(ctx, url, len(all)+1)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return o.runAll(ctx, all)
}

// tell prints the report, and writes the page if one is wanted.
func (o *benchOptions) tell(r *benchReport, page *os.File) error {
	if o.json {
		return errors.Join(r.json(o.std.out), writePage(r, page))
	}
	r.table(o.std.out)
	if err := writePage(r, page); err != nil {
		return err
	}
	if page != nil {
		fmt.Fprintf(o.std.out, "\nCharts are in %s.\n", o.page)
	}
	return nil
}

func writePage(r *benchReport, page *os.File) error {
	if page == nil {
		return nil
	}
	_ = page.Truncate(0) // a device cannot be
	return errors.Join(r.page(page), page.Close())
}
