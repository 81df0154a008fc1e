//go:build oldclients && unix

package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/dlock-go/dlock/internal/server"
)

var old = flag.String("old", "", "dlock of another version")

// TestOldAndNewClients has clients of two versions use the same locks on each server.
func TestOldAndNewClients(t *testing.T) {
	if *old == "" {
		t.Fatal("give the program of another version: make old-clients OLD=v0.1.0")
	}
	redis := func(t *testing.T) string { return server.Start(t, server.Redis{}).Addr() }
	for name, url := range map[string]func(t *testing.T) string{
		"redis": func(t *testing.T) string { return "redis://" + redis(t) },
		"redlock": func(t *testing.T) string {
			return "redlock://" + strings.Join([]string{redis(t), redis(t), redis(t)}, ",")
		},
		"etcd": func(t *testing.T) string { return "etcd://" + server.Start(t, server.Etcd{}).Addr() },
		"zk": func(t *testing.T) string {
			return "zk://" + server.Start(t, server.ZooKeeper{}).Addr() + "?ensemble=false"
		},
		"pg": func(t *testing.T) string {
			return "postgres://postgres@" + server.Start(t, server.Postgres{}).Addr() + "/postgres?sslmode=disable"
		},
		"file": func(t *testing.T) string { return "" },
	} {
		t.Run(name, func(t *testing.T) {
			var env []string
			if u := url(t); u != "" {
				env = []string{urlVariable + "=" + u}
			}
			s := newShell(t, env...)
			s.exclude()
			s.share()
			s.inspect(name)
		})
	}
}

// versions are the shells of both versions in one directory.
func (s *shell) versions() []*shell {
	other := *s
	other.program = *old
	return []*shell{s, &other}
}

// exclude has two clients of each version count in a file.
func (s *shell) exclude() {
	const each = 12
	write := func(file, text string) {
		if err := os.WriteFile(filepath.Join(s.dir, file), []byte(text), 0o600); err != nil {
			s.t.Fatal(err)
		}
	}
	write("count", "0")
	var all sync.WaitGroup
	for _, v := range slices.Repeat(s.versions(), 2) {
		all.Go(func() {
			for range each {
				cmd := v.command("run", "counter", "--", "sh", "-c", "n=$(cat count); sleep 0.01; echo $((n+1)) > count; echo $DLOCK_TOKEN >> tokens")
				if out, err := cmd.CombinedOutput(); err != nil {
					s.t.Errorf("%v: %v, %s", cmd.Args, err, out)
				}
			}
		})
	}
	all.Wait()
	if n := strings.TrimSpace(s.await("count")); n != strconv.Itoa(4*each) {
		s.t.Errorf("%d runs counted to %s", 4*each, n)
	}
	var tokens []uint64
	for _, text := range strings.Fields(s.await("tokens")) {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			s.t.Fatal(err)
		}
		tokens = append(tokens, n)
	}
	if !slices.IsSorted(tokens) || len(slices.Compact(slices.Clone(tokens))) != 4*each {
		s.t.Errorf("tokens are %v", tokens)
	}
}

// share has readers of both versions in at once, and a writer of either kept out.
func (s *shell) share() {
	for i, v := range s.versions() {
		name := fmt.Sprint("shared", i)
		first := v.start("run", "-s", name, "--", "sh", "-c", "echo > in"+name+"; exec sleep 300")
		s.await("in" + name)
		other := s.versions()[1-i]
		other.start("run", "-s", "-n", name, "--", "true").expect(0, "")
		other.start("run", "-n", name, "--", "true").expect(exitHeld, "held")
		_ = first.cmd.Process.Kill()
		<-first.done
	}
}

// inspect shows a hold of the other version.
func (s *shell) inspect(kind string) {
	for i, v := range s.versions() {
		name := fmt.Sprint("shown", i)
		v.start("run", name, "--", "sh", "-c", "echo > in"+name+"; exec sleep 300")
		s.await("in" + name)
		_, p := s.versions()[1-i].run("show", name)
		if !strings.Contains(p.out.String(), "exclusive") {
			s.t.Errorf("%s: %q shows %q, %q", kind, p.cmd.Args, p.out.String(), p.err.String())
		}
	}
}
