package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/dlock-go/dlock"
	"github.com/spf13/cobra"
	"golang.org/x/term"
)

const unlockHelp = `Take the lock NAME away from whoever holds it. The next waiter gets it at once.

The holder learns of it at its next renewal at the latest, and goes on working until
then: make sure that it is stuck or gone. With --token, as dlock show prints it, the lock
is taken away only from that hold. Without it the lock is taken from whoever has it now, and
a second dlock unlock takes it from the next one. Exit code 1 means that nobody holds the
lock, or not with that token, or that you answered no. A lock in files or Postgres lasts as
long as its process or connection: exit code 78, and the message says how to end that.`

func newUnlock(std stdio) *cobra.Command {
	var force, yes bool
	var token tokenFlag
	c := newQuery(std, "unlock --force NAME", "Take a lock away from its holder", unlockHelp, cobra.ExactArgs(1),
		func(ctx context.Context, q *query, c *dlock.Client, args []string) error {
			return q.unlock(ctx, c, args[0], uint64(token), yes)
		})
	f := c.Flags()
	f.BoolVar(&force, "force", false, "needed: the holder is not asked")
	f.BoolVarP(&yes, "yes", "y", false, "do not ask whether to go on")
	f.Var(&token, "token", "only the hold with this fencing `token`")
	open := c.PreRunE
	c.PreRunE = func(c *cobra.Command, args []string) error {
		switch {
		case !force:
			return usageError(errors.New("a lock is taken away only with --force"))
		case !yes && !term.IsTerminal(int(std.in.Fd())):
			return usageError(errors.New("without a terminal to ask at, give --yes"))
		}
		return open(c, args)
	}
	return c
}

// A tokenFlag is a token as somebody has typed it; 0: none.
type tokenFlag uint64

// Set implements pflag.Value.
func (t *tokenFlag) Set(text string) error {
	token, err := strconv.ParseUint(text, 10, 64)
	if err != nil || token == 0 {
		return errors.New("want a number greater than 0, as dlock show prints it")
	}
	*t = tokenFlag(token)
	return nil
}

// String implements pflag.Value. No token is the empty text, which help leaves out.
func (t *tokenFlag) String() string {
	if *t == 0 {
		return ""
	}
	return strconv.FormatUint(uint64(*t), 10)
}

// Type implements pflag.Value.
func (t *tokenFlag) Type() string { return "token" }

// unlock breaks the holds of the lock, or the one with the token that was given.
func (q *query) unlock(ctx context.Context, c *dlock.Client, name string, token uint64, yes bool) error {
	tokens := []uint64{token}
	var s dlock.Snapshot
	if token == 0 || !yes {
		var err error
		if s, err = c.Inspect(ctx, name); err != nil {
			return err
		}
		if token == 0 {
			tokens = tokensOf(s)
		}
		if len(s.Holders) == 0 {
			q.doubt(ctx, c)
			return errNobody(name)
		}
		if !yes {
			if err := printSnapshot(q.std.err, s); err != nil {
				return err
			}
		}
	}
	if !yes && !q.confirm(ctx, name) {
		return errNotConfirmed
	}
	broken := 0
	for _, token := range tokens {
		err := c.Break(ctx, name, token)
		if errors.Is(err, dlock.ErrNotHeld) { // this holder has released meanwhile, another may not have
			continue
		}
		if errors.Is(err, dlock.ErrUnsupported) {
			return q.howItEnds(ctx, c, name, err)
		}
		if err != nil {
			return err
		}
		broken++
		if err := q.printBroken(name, token, labelsOf(s, token)); err != nil {
			return err
		}
	}
	switch {
	case broken > 0:
		return nil
	case slices.Contains(tokens, 0):
		return fmt.Errorf("the lock %q is held under no token that is known, and nothing was taken away: something else than dlock may have written it", name)
	case token == 0:
		return fmt.Errorf("the hold of the lock %q that was there is over, and nothing was taken away: see dlock show", name)
	}
	return errNobody(name)
}

// howItEnds says, in place of unsupported, how the lock ends that the backend does not take
// away: with its process or its connection.
func (q *query) howItEnds(ctx context.Context, c *dlock.Client, name string, unsupported error) error {
	s, err := c.Inspect(ctx, name)
	if err != nil {
		return unsupported
	}
	if len(s.Holders) == 0 {
		return errNobody(name)
	}
	what, with, note := "process", "kill %s", "the number is that in the holder's container, if it runs in one"
	if strings.HasPrefix(c.Info().Backend, "postgres") {
		what, with, note = "connection", "SELECT pg_terminate_backend(%s)", "as its role or a superuser; all locks of the connection end"
	}
	var ways []string
	for _, h := range s.Holders {
		way := "a " + what + " whose number is not known"
		if number, _, _ := strings.Cut(h.Client, "/"); number != "" {
			way = fmt.Sprintf(with, number)
		}
		if h.Label != "" {
			way += fmt.Sprintf(" (%q)", h.Label)
		}
		ways = append(ways, way)
	}
	return &dlock.Error{Op: "break", Name: name, Kind: dlock.ErrUnsupported,
		Err: fmt.Errorf("the lock ends with the %s that holds it: %s: %s", what, strings.Join(ways, "; "), note)}
}

// printBroken says whose hold was taken away, as far as that was seen.
func (q *query) printBroken(name string, token uint64, labels []string) error {
	if q.json {
		return printJSON(q.std.out, struct {
			jsonName
			Token  uint64   `json:"token"`
			Labels []string `json:"labels,omitempty"`
		}{newJSONName(name), token, labels})
	}
	whose := ""
	if len(labels) > 0 {
		whose = printable(" (" + strings.Join(labels, "; ") + ")")
	}
	_, err := fmt.Fprintf(q.std.out, "%s: taken away from the holder with token %d%s\n", asTyped(name), token, whose)
	return err
}

// labelsOf returns the labels of those that hold the lock by a token.
func labelsOf(s dlock.Snapshot, token uint64) (labels []string) {
	for _, h := range s.Holders {
		if h.Token == token && h.Label != "" {
			labels = append(labels, h.Label)
		}
	}
	return labels
}

// tokensOf returns the tokens of the holders, each once.
func tokensOf(s dlock.Snapshot) []uint64 {
	var tokens []uint64
	seen := make(map[uint64]bool)
	for _, h := range s.Holders {
		if !seen[h.Token] {
			seen[h.Token] = true
			tokens = append(tokens, h.Token)
		}
	}
	return tokens
}

// confirm asks at the terminal. A signal that ends dlock is a no.
func (q *query) confirm(ctx context.Context, name string) bool {
	fmt.Fprintf(q.std.err, "Take the lock %s away? [y/N] ", asTyped(name))
	answer := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(q.std.in).ReadString('\n')
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case text := <-answer:
		return text == "y" || text == "yes"
	case <-ctx.Done():
		return false
	}
}
