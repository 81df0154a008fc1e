//go:build unix

package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/memory"
)

// expectOutput checks that dlock prints each of the texts, and nothing on stderr.
func (s *shell) expectOutput(args []string, texts ...string) {
	s.t.Helper()
	_, p := s.run(args...)
	p.expect(0, "")
	for _, text := range texts {
		if !strings.Contains(p.out.String(), text) {
			s.t.Errorf("%q printed %q, want %q in it", args, p.out.String(), text)
		}
	}
}

func TestShowAndList(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.expectOutput([]string{"show", "app/job"}, "app/job is free at file:///")
	holder := s.start("run", "app/job", "--", "sh", "-c", "echo > held; exec sleep 300")
	s.await("held")
	waiter := s.start("run", "app/job", "--", "true")
	until(t, "waiter", func() bool {
		_, p := s.run("show", "app/job")
		return strings.Contains(p.out.String(), "waits 1")
	})

	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	s.expectOutput([]string{"show", "app/job"}, "MODE", "holds", "exclusive", host)
	s.expectOutput([]string{"ls"}, "app/job\n")
	s.expectOutput([]string{"ls", "--json", "app/"}, `{"name":"app/job"}`+"\n")
	if _, p := s.run("__complete", "show", "app"); !strings.HasPrefix(p.out.String(), "app/job\n") {
		t.Errorf("completed to %q", p.out.String())
	}
	if _, p := s.run("ls", "other/"); p.out.String() != "" {
		t.Errorf("other names: %q", p.out.String())
	}

	_, p := s.run("show", "--json", "app/job")
	var got snapshot
	if err := json.Unmarshal(p.out.Bytes(), &got); err != nil || len(got.Holders) != 1 || len(got.Waiters) != 1 || got.Holders[0].Token == 0 {
		t.Errorf("%v: %s", err, p.out.String())
	}

	s.start("unlock", "--force", "--yes", "app/job").expect(exitConfig, "ends with the process that holds it: kill ")
	holder.signal(syscall.SIGTERM)
	waiter.expect(0, "")
}

func TestWatch(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.start("run", "app/job", "--", "sh", "-c", "echo > held; exec sleep 300")
	s.await("held")
	screen, err := os.Create(filepath.Join(s.dir, "screen"))
	if err != nil {
		t.Fatal(err)
	}
	defer screen.Close()
	watch := s.command("watch", "app/")
	watch.Stdout = screen
	if err := watch.Start(); err != nil {
		t.Fatal(err)
	}
	if text := s.await("screen"); !strings.Contains(text, "WAITERS") || !strings.Contains(text, "app/job") {
		t.Errorf("shows %q", text)
	}
	if err := watch.Process.Signal(syscall.SIGINT); err != nil {
		t.Error(err)
	}
	_ = watch.Wait()
	if code := watch.ProcessState.ExitCode(); code != exitSignal+int(syscall.SIGINT) {
		t.Errorf("exited with %d", code)
	}
}

// TestWatchCountsChanges has a look count as a change if none of the holders was one at
// the look before.
func TestWatchCountsChanges(t *testing.T) {
	held := func(tokens ...uint64) dlock.Snapshot {
		var s dlock.Snapshot
		for _, token := range tokens {
			s.Holders = append(s.Holders, dlock.Party{Token: token})
		}
		return s
	}
	var l look
	for i, step := range []struct {
		s       dlock.Snapshot
		changes uint
	}{{held(1), 0}, {held(1), 0}, {held(2), 1}, {held(2, 3), 1}, {held(3), 1}, {held(), 1}, {held(4), 2}} {
		if l = l.next(step.s); l.changes != step.changes || l.looks != uint(i+1) {
			t.Errorf("look %d: %+v, want %d changes", i+1, l, step.changes)
		}
	}

	l = look{}
	for _, client := range []string{"4711", "4711", "4712"} { // of a server that knows no tokens
		l = l.next(dlock.Snapshot{Holders: []dlock.Party{{Client: client}}})
	}
	if l.changes != 1 {
		t.Errorf("%d changes from one client to another", l.changes)
	}
}

func TestUnlockWants(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	for message, args := range map[string][]string{
		"only with --force": {"unlock", "job"},
		"give --yes":        {"unlock", "--force", "job"},
		`--token "0": want a number greater than 0`:  {"unlock", "--force", "--yes", "--token", "0", "job"},
		`--token "-5": want a number greater than 0`: {"unlock", "--force", "--yes", "--token", "-5", "job"},
		"want dlock unlock":                          {"unlock", "--force", "--yes"},
		"want dlock show":                            {"show"},
		"want dlock ping: a URL goes into DLOCK_URL": {"ping", "redis://h"},
		"put -- before a name that begins":           {"show", "-x"},
		"put -- before a name":                       {"ls", "--nightly"},
		"want dlock ls":                              {"ls", "a", "b"},
		"invalid name":                               {"show", ""},
		"--backend is empty":                         {"ping", "--backend", ""},
	} {
		s.start(args...).expect(exitUsage, message)
	}
	s.start("unlock", "--force", "--yes", "job").expect(exitFailed, "nobody holds the lock")
	s.start("ping", "--backend", "redis://127.0.0.1:1").expect(exitUnavailable, "is not available")
}

// A variable that is set and empty is a mistake, such as that of another variable that is
// not: locks in files of this machine would keep no other from doing the same.
func TestEmptyVariable(t *testing.T) {
	t.Parallel()
	s := newShell(t, urlVariable+"=")
	for _, args := range [][]string{{"ls"}, {"show", "job"}, {"doctor"}, {"run", "job", "--", "true"}, {"unlock", "--force", "--yes", "job"}} {
		s.start(args...).expect(exitConfig, "DLOCK_URL is set and empty")
	}
	s.start("doctor", fileURL(s.locks())).expect(0, "")
	s.start("show", "job", "--backend", fileURL(s.locks())).expect(0, "")
}

// A departing backend has two readers, of which the first releases before it is broken.
type departing struct {
	*memory.Backend
	broken []uint64
}

func (b *departing) Inspect(context.Context, string) (backend.Snapshot, error) {
	return backend.Snapshot{Holders: []backend.Party{{Token: 7}, {Token: 8}}}, nil
}

func (b *departing) Break(_ context.Context, _ string, token uint64) error {
	if token == 7 {
		return backend.ErrNotHeld
	}
	b.broken = append(b.broken, token)
	return nil
}

// A holder that releases by itself keeps no other from being broken.
func TestUnlockGoesOn(t *testing.T) {
	b := &departing{Backend: memory.New(memory.NewServer())}
	c, err := dlock.New(b, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer closeClient(c)
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	q := &query{std: stdio{out: out}}
	if err := q.unlock(t.Context(), c, "job", 0, true); err != nil || !slices.Equal(b.broken, []uint64{8}) {
		t.Errorf("%v, broken: %v", err, b.broken)
	}
	if err := q.unlock(t.Context(), c, "job", 7, true); !errors.Is(err, dlock.ErrNotHeld) {
		t.Errorf("got %v", err)
	}
}

// A passing backend has another holder than the one that was seen.
type passing struct{ *memory.Backend }

func (passing) Inspect(context.Context, string) (backend.Snapshot, error) {
	return backend.Snapshot{Holders: []backend.Party{{Token: 7}}}, nil
}

func (passing) Break(_ context.Context, _ string, token uint64) error {
	if token != 7 {
		panic("a hold that was not seen is broken")
	}
	return backend.ErrNotHeld
}

// Who names no token takes the lock from the holder that was seen, and not from the next.
func TestUnlockSparesTheNextHolder(t *testing.T) {
	c, err := dlock.New(passing{memory.New(memory.NewServer())}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer closeClient(c)
	err = new(query).unlock(t.Context(), c, "job", 0, true)
	if err == nil || !strings.Contains(message(err), "nothing was taken away") || exitCode(err) != exitFailed {
		t.Errorf("%v", err)
	}
}

// A tokenless backend does not know under which token a lock is held.
type tokenless struct{ *memory.Backend }

func (tokenless) Inspect(context.Context, string) (backend.Snapshot, error) {
	return backend.Snapshot{Holders: []backend.Party{{Mode: backend.Exclusive}}}, nil
}

func (tokenless) Break(context.Context, string, uint64) error { return backend.ErrNotHeld }

// A hold that no token names is not said to be over.
func TestUnlockWithoutAToken(t *testing.T) {
	c, err := dlock.New(tokenless{memory.New(memory.NewServer())}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer closeClient(c)
	err = new(query).unlock(t.Context(), c, "job", 0, true)
	if err == nil || !strings.Contains(message(err), "under no token") || exitCode(err) != exitFailed {
		t.Errorf("%v", err)
	}
}

// A lasting backend takes no lock away. It has a reader that nothing is known of.
type lasting struct{ *memory.Backend }

func (lasting) Inspect(context.Context, string) (backend.Snapshot, error) {
	return backend.Snapshot{Holders: []backend.Party{{Client: "1/f1c0a7e2", Label: "web-1"}, {Mode: backend.Shared}}}, nil
}

func (lasting) Break(context.Context, string, uint64) error { return backend.ErrUnsupported }

// Who cannot take a lock away is told what to end, by more than a number that may be that
// of another process here, and nothing that cannot be done.
func TestUnlockSaysHowALockEnds(t *testing.T) {
	c, err := dlock.New(lasting{memory.New(memory.NewServer())}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer closeClient(c)
	err = new(query).unlock(t.Context(), c, "job", 7, true)
	for _, want := range []string{`: kill 1 ("web-1"); a process whose number is not known: `, "container"} {
		if !errors.Is(err, dlock.ErrUnsupported) || !strings.Contains(message(err), want) {
			t.Errorf("%v: says no %q", err, want)
		}
	}
}

// watched returns a watch of locks of b, with what it has printed.
func watched(t *testing.T, b backend.Backend, count uint) (w *watch, c *dlock.Client, out, said func() string) {
	t.Helper()
	c, err := dlock.New(b, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeClient(c) })
	file := func(name string) (*os.File, func() string) {
		f, err := os.Create(filepath.Join(t.TempDir(), name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		return f, func() string {
			text, err := os.ReadFile(f.Name())
			if err != nil {
				t.Fatal(err)
			}
			return string(text)
		}
	}
	var std stdio
	std.out, out = file("out")
	std.err, said = file("err")
	return &watch{query: &query{std: std}, count: count, last: make(map[string]look)}, c, out, said
}

// A look that has no answer does not end a watch: it says so, and looks again.
func TestWatchGoesOn(t *testing.T) {
	b := memory.New(memory.NewServer())
	w, c, out, said := watched(t, b, 2)
	lease, err := c.Mutex("job").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b.FailNext(backend.ErrUnavailable)
	if err := w.run(t.Context(), c, ""); err != nil || !strings.Contains(out(), "job") || strings.Count(said(), "is not available") != 1 {
		t.Errorf("%v, shows %q, says %q", err, out(), said())
	}
	if err := lease.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}

	w, c, _, said = watched(t, b, 1)
	b.FailNext(backend.ErrUnavailable)
	if err := w.run(t.Context(), c, ""); !errors.Is(err, dlock.ErrUnavailable) || said() != "" {
		t.Errorf("the last look: %v, says %q", err, said())
	}
}

// An unlisted backend denies the list of names.
type unlisted struct{ *memory.Backend }

func (unlisted) Names(context.Context, string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) { yield("", backend.ErrAuth) }
}

// A distant backend answers when two ask at once.
type distant struct {
	*memory.Backend
	asked chan struct{}
}

func (b distant) Inspect(ctx context.Context, name string) (backend.Snapshot, error) {
	select {
	case b.asked <- struct{}{}:
	case <-b.asked:
	case <-ctx.Done():
		return backend.Snapshot{}, ctx.Err()
	}
	return b.Backend.Inspect(ctx, name)
}

// A watch asks for several locks at once, and shows each with what is its own.
func TestWatchAsksAtOnce(t *testing.T) {
	w, c, out, _ := watched(t, distant{memory.New(memory.NewServer()), make(chan struct{})}, 1)
	for _, name := range []string{"a", "b", "c", "d"} {
		l, err := c.Mutex(name, dlock.WithLabel("of "+name)).Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Unlock(context.Background()) }()
	}
	if err := w.run(t.Context(), c, ""); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b", "c", "d"} {
		if !regexp.MustCompile(`(?m)^` + name + ` +of ` + name + ` `).MatchString(out()) {
			t.Errorf("%q is not shown with its holder:\n%s", name, out())
		}
	}
}

// Who may not list names watches a lock by its whole name.
func TestWatchWithoutAList(t *testing.T) {
	w, c, out, _ := watched(t, unlisted{memory.New(memory.NewServer())}, 1)
	lease, err := c.Mutex("job", dlock.WithLabel("mine")).Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := w.run(t.Context(), c, "job"); err != nil || !strings.Contains(out(), "mine") || !strings.Contains(out(), "whole name") {
		t.Errorf("%v, shows %q", err, out())
	}
	if err := lease.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.looks = 0
	if err := w.run(t.Context(), c, ""); !errors.Is(err, dlock.ErrAuth) {
		t.Errorf("all names: %v", err)
	}
}

// A watch of more locks than it shows says so, and how to see the others.
func TestWatchOfManyLocks(t *testing.T) {
	w, c, out, _ := watched(t, memory.New(memory.NewServer()), 1)
	for i := range maxWatched + 1 {
		if _, err := c.Mutex(fmt.Sprint("job", i)).Lock(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.run(t.Context(), c, "job"); err != nil || !strings.Contains(out(), "longer PREFIX") {
		t.Errorf("%v, shows %q", err, out())
	}
}

// A client is told from others beside a process number of any length.
func TestShortClient(t *testing.T) {
	for client, want := range map[string]string{
		"f1c0a7e2b3":         "f1c0a7e2",
		"4711/f1c0a7e2b3":    "4711/f1c",
		"4194303/f1c0a7e2b3": "4194303/f1c",
		"4711":               "4711",
		"":                   "",
	} {
		if got := shortClient(dlock.Party{Client: client}); got != want {
			t.Errorf("%q is shown as %q, want %q", client, got, want)
		}
	}
}

// Completion on a server that says nothing takes about a second.
func TestCompletionEnds(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	s := newShell(t, urlVariable+"=etcd://"+silent.Addr().String())
	var took time.Duration
	for range 5 { // a busy machine may stop one of them
		start := time.Now()
		s.run("__complete", "show", "a")
		if took = time.Since(start); took < 2500*time.Millisecond { // to open takes 3 s
			return
		}
	}
	t.Errorf("it took %v", took)
}

func TestUnlockOnRedis(t *testing.T) {
	t.Parallel()
	s, c := newRedisShell(t)
	s.expectOutput([]string{"ping"}, "redis://", "version")
	stuck := s.start("run", "-t", "6s", "job", "--", "sh", "-c", "echo $DLOCK_TOKEN > held; exec sleep 300")
	token := s.await("held")
	s.start("unlock", "--force", "--yes", "--token", "1", "job").expect(exitFailed, "not with that token")
	next := s.start("run", "job", "--", "sh", "-c", "test $DLOCK_TOKEN -gt $(cat held) && exit 5")
	s.expectOutput([]string{"unlock", "--force", "--yes", "job"}, "job", "token "+token)
	next.expect(5, "")
	stuck.expect(exitLost, "lost")
	expectNoHolds(t, c)
}

// A name that a terminal would not show as it is can be taken from what dlock ls prints to
// another command, whatever it is made of.
func TestStrangeNames(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	for name, want := range map[string]string{
		"app/job 7 ü":                "app/job 7 ü",
		"a\x1b[31mb\nc\"d'e\\f\xffg": `$'a\x1b[31mb\x0ac"d\'e\\f\xffg'`,
		"$'a'":                       `$'$\'a\''`,
		"\u202eevil":                 `$'\xe2\x80\xaeevil'`,
		"job ":                       `$'job '`,
		" job":                       `$' job'`,
		"$(reboot)":                  `$'$(reboot)'`,
		"a;b":                        `$'a;b'`,
		"a'b":                        `$'a\'b'`,
		`a"b`:                        `$'a"b'`,
		`a\b`:                        `$'a\\b'`,
		"jobs/*":                     `$'jobs/*'`,
		"a?":                         `$'a?'`,
		"[ab]":                       `$'[ab]'`,
		"{a,b}":                      `$'{a,b}'`,
		"~root":                      `$'~root'`,
		"a~b":                        "a~b",
		"#1":                         `$'#1'`,
		"a#1":                        "a#1",
		"!rm":                        `$'\x21rm'`,
	} {
		if got := asTyped(name); got != want {
			t.Errorf("%q is typed as %s, want %s", name, got, want)
		}
	}
	const name = "a\x1b[31mb\nc\"d'e\\f"
	s.start("run", name, "--", "sh", "-c", "echo > held; exec sleep 300")
	s.await("held")
	s.expectOutput([]string{"ls"}, asTyped(name)+"\n")
	show := exec.Command("bash", "-c", `eval "$0 show $($0 ls)"`, s.program)
	show.Dir, show.Env = s.dir, s.command().Env
	if out, err := show.CombinedOutput(); err != nil || !strings.Contains(string(out), "holds") {
		t.Errorf("%v: %s", err, out)
	}
	for _, name := range []string{name, "a'b", `a"b`, `a\b`, "*", "?", "[a-z]*", "{a,b}", "~", "#1", "!!", "a b"} {
		typed := asTyped(name)
		if strings.Contains(name, " ") {
			typed = `"` + typed + `"`
		}
		if out, err := exec.Command("bash", "-c", "printf %s "+typed).CombinedOutput(); err != nil || string(out) != name {
			t.Errorf("%q is typed as %s, of which bash makes %q, %v", name, typed, out, err)
		}
	}
	if _, p := s.run("__complete", "show", ""); !strings.HasPrefix(p.out.String(), ":") {
		t.Errorf("completed to %q", p.out.String())
	}
}

// No name that a shell would act on is offered to it for completion: what several names begin with
// is put into the line as it is, and bash evaluates the line to complete it further.
func TestNoCommandIsCompleted(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	for _, name := range []string{"job/$(touch done)/1", "job/$(touch done)/2", "job/`touch done`", "job/a;touch done", "job/plain"} {
		s.start("run", name, "--", "sh", "-c", "echo > held; exec sleep 300")
		s.await("held")
		if err := os.Remove(filepath.Join(s.dir, "held")); err != nil {
			t.Fatal(err)
		}
	}
	if _, p := s.run("__complete", "show", "job"); !strings.HasPrefix(p.out.String(), "job/plain\n:") {
		t.Errorf("completed to %q", p.out.String())
	}
}

// A name of any bytes comes out of --json, and out of ls, so that it can be given to other
// commands.
func TestNamesOfAnyBytes(t *testing.T) {
	t.Parallel()
	s, _ := newRedisShell(t)
	c, err := dlock.Open(t.Context(), s.extra[0][len(urlVariable)+1:], nil)
	if err != nil {
		t.Fatal(err)
	}
	defer closeClient(c)
	for name, want := range map[string]string{
		"r\xe9sum\xe9":     `{"name":"r\ufffdsum\ufffd","name_base64":"culzdW3p"}`,
		"a\x00b":           `{"name":"a\u0000b","name_base64":"YQBi"}`,
		"r\u00e9sum\u00e9": `{"name":"r\u00e9sum\u00e9"}`,
	} {
		lease, err := c.Mutex(name).Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		encoded := base64.StdEncoding.EncodeToString([]byte(name))
		_, listed := s.run("ls", "--json", "--base64", encoded)
		var got, wanted any
		if err := errors.Join(json.Unmarshal(listed.out.Bytes(), &got), json.Unmarshal([]byte(want), &wanted)); err != nil || !reflect.DeepEqual(got, wanted) {
			t.Errorf("%v: %s, want %s", err, listed.out.String(), want)
		}
		var shown snapshot
		_, p := s.run("show", "--json", "--base64", encoded)
		if err := json.Unmarshal(p.out.Bytes(), &shown); err != nil || len(shown.Holders) != 1 || shown.Holders[0].Token != lease.Token() {
			t.Errorf("%v: %s", err, p.out.String())
		}
		if exact := string(shown.Exact); exact != name && (exact != "" || shown.Name != name) {
			t.Errorf("%q comes back as %+v", name, shown.jsonName)
		}
		_, typed := s.run("ls")
		if text := strings.TrimSuffix(typed.out.String(), "\n"); text != asTyped(name) {
			t.Errorf("%q is listed as %s", name, text)
		}
		unlock := exec.Command("bash", "-c", `eval "$0 unlock --force --yes --json $($0 ls)"`, s.program)
		unlock.Dir, unlock.Env = s.dir, s.command().Env
		if out, err := unlock.CombinedOutput(); err != nil || !strings.HasPrefix(string(out), strings.TrimSuffix(strings.TrimSpace(listed.out.String()), "}")) {
			t.Errorf("%v: %s", err, out)
		}
	}
	s.start("show", "--base64", "a b").expect(exitUsage, `"a b" is not base64`)
}

// A label that JSON cannot be comes out of --json, too.
func TestLabelOfAnyBytes(t *testing.T) {
	got := newParties([]dlock.Party{{Label: "a\xff"}, {Label: "a"}})
	if string(got[0].Exact) != "a\xff" || got[1].Exact != nil {
		t.Errorf("%+v", got)
	}
}

// What the server does not know of a party, its mode too, is a dash, and not in the JSON.
func TestUnknownParty(t *testing.T) {
	unknown := dlock.Snapshot{Waiters: []dlock.Party{{}}}
	var table, object strings.Builder
	if err := errors.Join(printSnapshot(&table, unknown), printJSON(&object, newSnapshot("job", unknown))); err != nil {
		t.Fatal(err)
	}
	_, row, _ := strings.Cut(table.String(), "\n")
	if got, want := strings.Join(strings.Fields(row), " "), "waits 1 - - - - - - -"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := object.String(), `{"name":"job","holders":[],"waiters":[{}]}`+"\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Who asks about locks in a directory that is not there hears so, and has not made it.
func TestMissingDirectoryIsNotMade(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	missing := filepath.Join(s.dir, "missing")
	for _, args := range [][]string{{"ls"}, {"show", "job"}, {"watch", "-n", "1"}, {"ping"}, {"doctor"}, {"unlock", "--force", "--yes", "job"}} {
		s.start(append(args, "--backend", fileURL(missing))...).expect(exitConfig, "no directory "+missing)
	}
	s.start("doctor", fileURL(missing)).expect(exitConfig, "no directory "+missing)
	s.start("show", "job", "--backend", "file://missing/locks").expect(exitConfig, "want file:///directory")
	if _, err := os.Lstat(missing); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it was made: %v", err)
	}
}

// Of locks that nobody uses watch says so.
func TestWatchNothing(t *testing.T) {
	t.Parallel()
	newShell(t).expectOutput([]string{"watch", "-n", "1", "app/"}, "no such lock is held or waited for\n")
}

// An error of several causes is one line that says each of them once, in plain words.
func TestErrorOnOneLine(t *testing.T) {
	const text = "failed to connect:\n\thost:1: context deadline exceeded\n\thost:1: context deadline exceeded\n\thost:2: refused"
	if got, want := oneLine(text), "failed to connect: host:1: no answer in time; host:2: refused"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// What is wrong with a backend before any lock is asked for is not said of a lock without a
// name.
func TestErrorWithoutALock(t *testing.T) {
	err := &dlock.Error{Op: "open", Kind: dlock.ErrConflict, Err: errors.New("everybody may change the node /dlock")}
	if got, want := message(err), "something else has the place of locks on the backend: everybody may change the node /dlock"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A server that says nothing is named by where it is.
func TestSilentServerIsNamed(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	s := newShell(t)
	s.start("ping", "--backend", "redis://user:secret@"+silent.Addr().String()).expect(exitUnavailable, ": "+silent.Addr().String()+": ")
}

// Where Sentinels or nodes of a cluster are named in the URL, it may be another server that says
// nothing.
func TestServerBehindOthersIsNamed(t *testing.T) {
	for url, want := range map[string]string{
		"redis://h1":             ": h1: i/o timeout",
		"redis+sentinel://h1/m":  ": the master of the Sentinels h1: i/o timeout",
		"redis+cluster://h1,h2":  ": a node of the cluster of h1,h2: i/o timeout",
		"rediss+sentinel://h1/m": ": the master of the Sentinels h1: i/o timeout",
	} {
		err := nameServers(&dlock.Error{Op: "open", Kind: dlock.ErrUnavailable, Err: errors.New("i/o timeout")}, url)
		if got := message(err); !strings.HasSuffix(got, want) {
			t.Errorf("%s: %q, want %q at its end", url, got, want)
		}
	}
	err := nameServers(&dlock.Error{Kind: dlock.ErrUnavailable, Err: errors.New("redis: all sentinels specified in configuration are unreachable: i/o timeout")}, "redis+sentinel://h1/m")
	if got := message(err); strings.Contains(got, "master") {
		t.Error(got)
	}
}
