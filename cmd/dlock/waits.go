package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

// patience is for how long dlock run waits for a lock before it looks why.
const patience = 2 * time.Second

// explainWait says once why a lock that nobody holds is not granted, such as a quorum whose
// nodes take no part yet. Of a lock that is held there is nothing to say: the user asked to
// wait for it.
func (o *runOptions) explainWait(ctx context.Context, client *dlock.Client, name string) {
	if !backend.Sleep(ctx, patience) {
		return
	}
	s, err := client.Inspect(ctx, name)
	if err != nil || len(s.Holders) > 0 {
		return
	}
	var findings []dlock.Finding
	err = client.Examine(ctx, func(f dlock.Finding) { findings = append(findings, f) })
	if why := reasons(findings); err == nil && why != "" && ctx.Err() == nil {
		complain(o.std.err, fmt.Errorf("waits for the lock %q, which nobody holds: %s", name, why))
	}
}

// reasons are the faults among findings, with what else is said of their subjects.
func reasons(findings []dlock.Finding) string {
	var subjects, texts []string
	for _, f := range findings {
		if f.Level == backend.Fault {
			subjects = append(subjects, f.Subject)
			texts = append(texts, withoutPrefix(f.Text))
		}
	}
	for _, f := range findings {
		if f.Level == backend.Warning && slices.Contains(subjects, f.Subject) {
			texts = append(texts, withoutPrefix(f.Text))
		}
	}
	return strings.Join(texts, "; ")
}
