//go:build unix

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/memory"
	"github.com/dlock-go/dlock/internal/server"
)

func TestDoctorOnFiles(t *testing.T) {
	t.Parallel()
	s := newShell(t, "LC_ALL=C.UTF-8")
	s.expectOutput([]string{"doctor"}, "✓ answers", "✓ directory", "✓ space", "no fault")
	s.expectOutput([]string{"doctor", "file://" + s.dir}, "✓ directory  "+s.dir)
	_, p := s.run("doctor", "--json")
	for lines := bufio.NewScanner(bytes.NewReader(p.out.Bytes())); lines.Scan(); {
		var f struct{ Level, Subject, Text, Advice string }
		if err := json.Unmarshal(lines.Bytes(), &f); err != nil || f.Subject == "" || f.Text == "" || (f.Level == "ok") != (f.Advice == "") {
			t.Errorf("%v: %s", err, lines.Text())
		}
	}
	s.start("doctor", "a", "b").expect(exitUsage, "want dlock doctor")
	s.start("doctor", "redis://127.0.0.1:1").expect(exitUnavailable, "is not available")
}

// A server that is configured well has nothing but good findings; each fault of one that
// is not has a line, with what to do, and no password.
func TestDoctorOnRedis(t *testing.T) {
	t.Parallel()
	good := server.Start(t, server.Redis{AppendOnly: true})
	s := newShell(t, "LC_ALL=C")
	s.expectOutput([]string{"doctor", "redis://" + good.Addr()}, "+ answers", "+ scripts", "+ messages", "+ version", "no fault, no warning")

	weak := "--user weak on >secret ~* resetchannels -@all +hello +auth +ping +select +client|setname +info +eval +evalsha +hset"
	bad := server.Start(t, server.Redis{Args: append(strings.Fields(weak), "--maxmemory", "10gb", "--maxmemory-policy", "allkeys-lru")})
	for url, want := range map[string][]string{
		"redis://" + bad.Addr():                        {"x eviction", "maxmemory-policy to noeviction", "! restart", "appendonly"},
		"redis://weak:secret@" + bad.Addr():            {"x scripts ", "locks need what the user may not do: exists, hdel, ", "+exists +hdel ", "! clock", "! messages", "! names", "+scan", "x eviction"},
		"redis://" + good.Addr() + "?dlock.replicas=1": {"x replicas", "dlock.replicas"},
	} {
		code, p := s.run("doctor", url)
		out := p.out.String()
		for _, text := range want {
			if !strings.Contains(out, text) {
				t.Errorf("%s: %q is not in\n%s", url, text, out)
			}
		}
		if strings.Contains(out, "secret") {
			t.Errorf("the password is in %s", out)
		}
		if hasFault := strings.Contains(out, "\nx "); (code == exitFailed) != hasFault {
			t.Errorf("%s: exit code %d of\n%s", url, code, out)
		}
	}
}

// A server that is of no use to locks says why: one that is full.
func TestDoctorOnFullEtcd(t *testing.T) {
	t.Parallel()
	full := server.Start(t, server.Etcd{Args: []string{"--quota-backend-bytes=32768"}})
	s := newShell(t, "LC_ALL=C", urlVariable+"=etcd://"+full.Addr())
	until(t, "a full server", func() bool {
		_, p := s.run("run", strings.Repeat("long", 200), "--", "true")
		return strings.Contains(p.err.String(), "NOSPACE")
	})
	p := s.start("doctor")
	if code, out := p.wait(), p.out.String(); code != exitFailed || !strings.Contains(out, "etcdctl alarm disarm") {
		t.Errorf("exit code %d of\n%s%s", code, out, p.err.String())
	}
}

// A counted backend counts the questions whether it answers.
type counted struct {
	*memory.Backend
	pings int
}

func (b *counted) Ping(context.Context) (string, error) {
	b.pings++
	return "", nil
}

// A backend that is far away is not asked fifty times: who looks has no time for that.
func TestDoctorEndsOnASlowBackend(t *testing.T) {
	b := &counted{Backend: memory.New(memory.NewServer())}
	c, err := dlock.New(b, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer closeClient(c)
	for limit, want := range map[time.Duration]int{0: 1, time.Hour: pings} {
		b.pings = 0
		if f, err := measureAnswers(t.Context(), c, limit); err != nil || f.Level != backend.OK || b.pings != want {
			t.Errorf("%d questions within %v, want %d: %+v, %v", b.pings, limit, want, f, err)
		}
	}
}

// An examined backend has a finding with an error of the library in it.
type examined struct{ *memory.Backend }

func (examined) Examine(_ context.Context, report func(backend.Finding)) error {
	report(backend.Bad("space", "no file: "+backend.Fail(backend.ErrUnavailable, context.DeadlineExceeded).Error(), "make room"))
	return nil
}

// A finding is in the words of the command line, as its errors are.
func TestDoctorInPlainWords(t *testing.T) {
	c, err := dlock.New(examined{memory.New(memory.NewServer())}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer closeClient(c)
	w, _, out, _ := watched(t, memory.New(memory.NewServer()), 0)
	if err := w.examine(t.Context(), c); err != exitStatus(exitFailed) || !strings.Contains(out(), "no file: no answer in time\n") {
		t.Errorf("%v: %s", err, out())
	}
}
