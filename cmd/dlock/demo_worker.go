package main

import (
	"context"
	"io"
	"os"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/spf13/cobra"
)

const workerName = "worker"

// newWorker is the command that one process of the demo runs.
func newWorker(std stdio) *cobra.Command {
	var dir, lock string
	var number int
	c := &cobra.Command{
		Use:    workerName,
		Short:  "Sell from the stock of a demo",
		Hidden: true,
		Args:   noArguments,
		RunE:   func(*cobra.Command, []string) error { return workerMain(std, dir, number, lock) },
	}
	c.Flags().StringVar(&dir, "dir", "", "directory of the stock")
	c.Flags().IntVar(&number, "number", 0, "number of the worker")
	c.Flags().StringVar(&lock, "lock", "", "name of the lock, empty for none")
	return c
}

func workerMain(std stdio, dir string, number int, lock string) error {
	s, err := openStock(dir)
	if err != nil {
		return err
	}
	defer s.close()
	b, err := s.openBook(number)
	if err != nil {
		return err
	}
	defer b.file.Close()
	serve := func() (bool, time.Duration, error) { return unlocked(s) }
	if lock != "" {
		client, err := openClient(context.Background(), os.Getenv(urlVariable), dlock.Options{})
		if err != nil {
			return err
		}
		defer closeClient(client)
		serve = func() (bool, time.Duration, error) { return locked(client.Mutex(lock), s) }
	}
	if err := awaitStart(std); err != nil {
		return err
	}
	return sellOut(b, serve)
}

// awaitStart says that the worker is there, and waits for the start, which is a byte of
// the input. The end of the input ends the process.
func awaitStart(std stdio) error {
	if _, err := std.out.Write([]byte{'\n'}); err != nil {
		return err
	}
	_, err := io.ReadFull(std.in, make([]byte, 1))
	go dieWith(std.in)
	return err
}

// dieWith ends the process at the end of in: the demo that started it is gone.
func dieWith(in io.Reader) {
	_, _ = io.Copy(io.Discard, in)
	os.Exit(exitFailed)
}

// sellOut serves customers until nothing is left.
func sellOut(b book, serve func() (sold bool, waited time.Duration, err error)) error {
	for {
		sold, waited, err := serve()
		if err != nil || !sold {
			return err
		}
		if err := b.enter(waited); err != nil {
			return err
		}
	}
}

func unlocked(s *stockFile) (sold bool, waited time.Duration, err error) {
	sold, err = s.sell()
	return sold, 0, err
}

func locked(m *dlock.Mutex, s *stockFile) (sold bool, waited time.Duration, err error) {
	start := time.Now()
	err = dlock.Do(context.Background(), m, func(context.Context, *dlock.Lease) error {
		waited = time.Since(start)
		var err error
		sold, err = s.sell()
		return err
	})
	return sold, waited, err
}
