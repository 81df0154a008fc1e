package server

import (
	"context"
	"io"
	"net"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantRecord(t *testing.T, sub subject, s *Server, want bool) {
	t.Helper()
	if reply := sub.read(t, s.Addr()); strings.Contains(reply, record) != want {
		t.Errorf("record there: %v, want %v; the server said %q", !want, want, reply)
	}
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	const longest = 100 * time.Millisecond // between two looks: some look at all processes
	pause := pollInterval
	for end := time.Now().Add(testLimit); !holds(); time.Sleep(pause) {
		pause = min(pause*3/2, longest)
		if time.Now().After(end) {
			t.Fatalf("still not after %v: %s", testLimit, what)
		}
	}
}

func TestServerKeepsItsData(t *testing.T) {
	eachSubject(t, func(t *testing.T, sub subject) {
		s := Start(t, sub.kind)
		addr, pid := s.Addr(), s.Pid()
		sub.write(t, addr)
		must(t, s.Kill())
		must(t, s.Restart(true))
		wantRecord(t, sub, s, true)
		if s.Addr() != addr || s.Pid() == pid {
			t.Errorf("restarted at %s as %d, was at %s as %d", s.Addr(), s.Pid(), addr, pid)
		}
		must(t, s.Restart(true)) // after a stop in good order
		wantRecord(t, sub, s, true)
		must(t, s.Restart(false))
		wantRecord(t, sub, s, false)
	})
}

func TestServersOfOneKindAreApart(t *testing.T) {
	wellFormed := regexp.MustCompile(`^\d+(\.\d+)+$`)
	eachSubject(t, func(t *testing.T, sub subject) {
		one, other := Start(t, sub.kind), Start(t, sub.kind)
		sub.write(t, one.Addr())
		wantRecord(t, sub, one, true)
		wantRecord(t, sub, other, false)
		if version := one.Version(); !wellFormed.MatchString(version) || !strings.HasPrefix(version, sub.version) {
			t.Errorf("version %q, want one that begins with %q", version, sub.version)
		}
	})
}

func TestPausedServer(t *testing.T) {
	eachSubject(t, func(t *testing.T, sub subject) {
		s := Start(t, sub.kind)
		sub.write(t, s.Addr())
		must(t, s.Pause())
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		if err := sub.kind.probe(ctx, s.Addr()); err == nil {
			t.Error("a paused server answers")
		}
		must(t, s.Resume())
		wantRecord(t, sub, s, true)

		ends(t, "kill", s, s.Kill)
		must(t, s.Restart(true))
		ends(t, "stop", s, s.Stop)
	})
}

// ends has a paused server end with all its processes.
func ends(t *testing.T, how string, s *Server, end func() error) {
	t.Helper()
	must(t, s.Pause())
	tree := s.proc.freeze()
	must(t, end())
	if !allIn(tree, endedStates) {
		t.Errorf("%s left processes of %v", how, tree)
	}
	if conn, err := net.Dial("tcp", s.Addr()); err == nil {
		conn.Close()
		t.Errorf("something listens after %s", how)
	}
	must(t, end())
}

func TestCloseRemovesTheDirectory(t *testing.T) {
	s, err := New(Redis{})
	must(t, err)
	must(t, s.Close())
	if _, err := os.Stat(s.dir); !os.IsNotExist(err) {
		t.Errorf("the directory is still there: %v", err)
	}
	must(t, s.Close())
	if err := s.Pause(); err == nil {
		t.Error("a closed server can be paused")
	}
}

func TestFailedStartShowsTheLog(t *testing.T) {
	for name, test := range map[string]struct {
		kind Kind
		want string
	}{
		"redis":     {Redis{Args: []string{"--no-such-directive", "1"}}, "no-such-directive"},
		"postgres":  {Postgres{Settings: []string{"no_such_setting=1"}}, "no_such_setting"},
		"etcd":      {Etcd{Args: []string{"--no-such-flag"}}, "no-such-flag"},
		"zookeeper": {ZooKeeper{Config: []string{"tickTime=none"}}, "none"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := New(test.kind)
			if err == nil {
				s.Close()
				t.Fatal("the server starts")
			}
			if want := name + " does not start"; !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %q, want %q and %q in it", err, want, test.want)
			}
		})
	}
}

// A shy server hangs up on whoever asks for its version first.
type shy struct {
	Redis
	asked *atomic.Int32
}

func (s shy) version(ctx context.Context, addr string) (string, error) {
	if s.asked.Add(1) == 1 {
		return "", io.EOF
	}
	return s.Redis.version(ctx, addr)
}

func TestVersionIsAskedForAgain(t *testing.T) {
	if s := Start(t, shy{asked: new(atomic.Int32)}); s.Version() == "" {
		t.Error("the version is not known")
	}
}

func TestMissingProgram(t *testing.T) {
	_, err := findBinary("", "no-such-server", "/no/such/place/*")
	if err == nil || err.Error() != "no-such-server is not installed: run `make servers`" {
		t.Errorf("error %v does not say how to get it", err)
	}
	for _, kind := range []Kind{
		Redis{Binary: "/no/such/program"},
		Postgres{BinDir: "/no/such"},
		Etcd{Binary: "/no/such/program"},
	} {
		if _, err := New(kind); err == nil || !strings.Contains(err.Error(), "/no/such") {
			t.Errorf("%s: error %v does not name the program", kind.name(), err)
		}
	}
}

func TestEtcdIsFoundFromTheModuleOnly(t *testing.T) {
	t.Chdir(t.TempDir())
	if _, err := New(Etcd{}); err == nil || !strings.Contains(err.Error(), "make servers") {
		t.Errorf("error %v does not say how to get it", err)
	}
}

func TestRedisThatWantsAPasswordIsHealthy(t *testing.T) {
	s := Start(t, Redis{Args: []string{"--requirepass", "secret"}})
	if reply := redisRead(t, s.Addr()); !strings.HasPrefix(reply, "-NOAUTH") {
		t.Errorf("a redis with a password says %q", reply)
	}
}

func TestPostgresSettings(t *testing.T) {
	s := Start(t, Postgres{Settings: []string{"max_connections=17"}})
	if reply := talk(t, s.Addr(), postgresQuery("SHOW max_connections")); !strings.Contains(reply, "17") {
		t.Errorf("setting not taken: %q", reply)
	}
}

func TestZooKeeperSuperuser(t *testing.T) {
	const authXid, authenticate, whoAmI = -4, 100, 107
	s := Start(t, ZooKeeper{SuperPassword: "secret"})
	reply := talk(t, s.Addr(), zooKeeperSession(
		packet(authXid, authenticate, 0, "digest", "super:secret"), packet(1, whoAmI)))
	if !strings.Contains(reply, "super") {
		t.Errorf("not the superuser: %q", reply)
	}
}

func TestZooKeeperPropertiesOfItsConfig(t *testing.T) {
	s := Start(t, ZooKeeper{Config: []string{"minSessionTimeout=600"}})
	reply := talk(t, s.Addr(), "conf")
	for _, want := range []string{"tickTime=200\n", "minSessionTimeout=600\n"} {
		if !strings.Contains(reply, want) {
			t.Errorf("no %q in %q", want, reply)
		}
	}
}
