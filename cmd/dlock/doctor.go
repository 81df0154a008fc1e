package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/spf13/cobra"
)

func newDoctor(std stdio) *cobra.Command {
	q := &query{std: std}
	cmd := &cobra.Command{
		Use:   "doctor [URL]",
		Short: "Look for what would hurt locks on a backend",
		Long: "Look at the backend of URL, or of --backend, for what would hurt locks: how long it\n" +
			"takes to answer, its version, permissions and settings. Each line is good (✓), a warning (!) or\n" +
			"a fault (✗), with what to do about it. Exit code 1 means that there is a fault.\n\n" + exitHelp(false),
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usageError(fmt.Errorf("want dlock doctor [URL]"))
			}
			if len(args) == 1 {
				q.backend = args[0]
			}
			return nil
		},
		RunE: func(*cobra.Command, []string) error { return q.run(q.examine) },
	}
	backendFlag(cmd, &q.backend, "files of this user")
	cmd.Flags().BoolVar(&q.json, "json", false, "print JSON for programs, one object a line")
	return cmd
}

// examine prints what there is to be said of the backend, and fails if there is a fault.
func (q *query) examine(ctx context.Context, c *dlock.Client) error {
	answers, unanswered := measureAnswers(ctx, c, pingTime)
	findings := []dlock.Finding{answers}
	err := c.Examine(ctx, func(f dlock.Finding) {
		f.Text = oneLine(withoutPrefix(f.Text)) // an error may be part of it
		findings = append(findings, f)
	})
	switch {
	case err != nil && len(findings) == 1 && unanswered != nil:
		return unanswered
	case err != nil:
		findings = append(findings, backend.Bad("examination", oneLine(message(err)), "see whether the backend answers and what the user may do"))
	}
	if err := q.printFindings(findings); err != nil {
		return err
	}
	if slices.ContainsFunc(findings, func(f dlock.Finding) bool { return f.Level == backend.Fault }) {
		return exitStatus(exitFailed)
	}
	return nil
}

// So many answers are measured, or as many as come within a time in which a person waits.
const (
	pings    = 50
	pingTime = 5 * time.Second
)

// measureAnswers says how long the backend takes to answer, or that it does not.
func measureAnswers(ctx context.Context, c *dlock.Client, limit time.Duration) (dlock.Finding, error) {
	var took []time.Duration
	for end := time.Now().Add(limit); len(took) < pings && (len(took) == 0 || time.Now().Before(end)); {
		start := time.Now()
		if err := c.Ping(ctx); err != nil {
			return backend.Bad("answers", oneLine(message(err)), "see the other findings"), err
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	half, most := took[len(took)/2], took[len(took)*99/100]
	return backend.Good("answers", fmt.Sprintf("%s answers, half of the time within %v, 99 %% within %v",
		c.Info().Address, half.Round(time.Microsecond), most.Round(time.Microsecond))), nil
}

func (q *query) printFindings(findings []dlock.Finding) error {
	if q.json {
		for _, f := range findings {
			err := printJSON(q.std.out, struct {
				Level   string `json:"level"`
				Subject string `json:"subject"`
				Text    string `json:"text"`
				Advice  string `json:"advice,omitempty"`
			}{f.Level.String(), f.Subject, f.Text, f.Advice})
			if err != nil {
				return err
			}
		}
		return nil
	}
	return printFindings(q.std.out, findings, marks())
}

// printFindings prints each finding in a line, and below it what to do.
func printFindings(w io.Writer, findings []dlock.Finding, marks [3]string) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	faults, warnings := 0, 0
	for _, f := range findings {
		fmt.Fprintf(table, "%s %s\t%s\n", marks[f.Level], printable(f.Subject), printable(f.Text))
		if f.Advice != "" {
			fmt.Fprintf(table, "\t-> %s\n", printable(f.Advice))
		}
		switch f.Level {
		case backend.Fault:
			faults++
		case backend.Warning:
			warnings++
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "%s, %s\n", count(faults, "fault"), count(warnings, "warning"))
	return err
}

func count(n int, what string) string {
	switch n {
	case 0:
		return "no " + what
	case 1:
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// marks stand before good findings, warnings and faults.
func marks() [3]string {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := strings.ToLower(os.Getenv(name)); v != "" {
			if strings.Contains(v, "utf-8") || strings.Contains(v, "utf8") {
				return [3]string{"✓", "!", "✗"}
			}
			break
		}
	}
	return [3]string{"+", "!", "x"}
}
