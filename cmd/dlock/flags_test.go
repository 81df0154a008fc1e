//go:build unix

package main

import (
	"os"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// What is no number is told in words of the command line, for every flag that takes one.
func TestNumbersOfFlags(t *testing.T) {
	checked := 0
	for _, c := range newRoot(stdio{os.Stdin, os.Stdout, os.Stderr}).Commands() {
		if c.Hidden {
			continue
		}
		c.Flags().VisitAll(func(f *pflag.Flag) {
			bad := []string{"x", "-1", "99999999999999999999", "1e999", ""}
			switch f.Value.Type() {
			case "int", "uint", "uint64", "token":
			case "duration":
				bad[2] = "1y"
			default:
				return
			}
			checked++
			for _, text := range bad {
				args := []string{c.Name(), "--" + f.Name + "=" + text}
				switch c.Name() {
				case "run":
					args = append(args, "job", "--", "true")
				case "unlock", "show", "watch":
					args = append(args, "--backend=file:///nowhere/at/all", "job")
				}
				_, p := newShell(t).run(args...)
				said := p.err.String()
				if code := p.wait(); code != exitUsage || !strings.Contains(said, "--"+f.Name) && !strings.Contains(said, "job") || strings.Contains(said, "strconv") || strings.Contains(said, "parsing") || strings.Contains(said, "argument") || strings.Count(said, "\n") != 1 {
					t.Errorf("%q: %d, %q", args, code, said)
				}
			}
		})
	}
	if checked < 13 {
		t.Errorf("%d flags take a number, there were more", checked)
	}
}
