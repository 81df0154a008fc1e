package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

var updatePages = flag.Bool("update", false, "write what the commands print into docs/operating.md and the man page")

const manPage = "dlock.1"

// TestManPage has the man page say what --help says.
func TestManPage(t *testing.T) {
	want := manOf(newRoot(stdio{in: os.Stdin, out: os.Stdout, err: os.Stderr}))
	if *updatePages {
		if err := os.WriteFile(manPage, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(manPage)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is not what the commands say: go test ./cmd/dlock -run TestManPage -update", manPage)
	}
}

// manOf returns the man page of a command and those below it, in troff.
func manOf(root *cobra.Command) string {
	var b strings.Builder
	fmt.Fprintf(&b, ".TH DLOCK 1\n.SH NAME\ndlock \\- %s\n.SH SYNOPSIS\n", troff(root.Short))
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() {
			fmt.Fprintf(&b, ".B dlock\n%s\n.br\n", troff(c.Use))
		}
	}
	b.WriteString(".SH COMMANDS\n")
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() && c.Name() != "completion" {
			writeCommand(&b, c)
		}
	}
	b.WriteString(`.SH ENVIRONMENT
.TP
.B DLOCK_URL
The backend, where no \-\-backend is given.
.SH SEE ALSO
https://github.com/dlock-go/dlock, docs/operating.md
`)
	return b.String()
}

func writeCommand(b *strings.Builder, c *cobra.Command) {
	text := c.Long
	if text == "" {
		text = c.Short
	}
	fmt.Fprintf(b, ".SS dlock %s\n.nf\n%s\n.fi\n", troff(c.Use), troff(text))
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		name, usage := pflag.UnquoteUsage(f)
		option := "--" + f.Name
		if f.Shorthand != "" {
			option = "-" + f.Shorthand + ", " + option
		}
		fmt.Fprintf(b, ".TP\n.B %s\n%s\n", troff(strings.TrimSpace(option+" "+name)), troff(usage))
	})
}

// troff escapes what begins a request, or would be a hyphen.
func troff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "\t", "    ").Replace(text)
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}
