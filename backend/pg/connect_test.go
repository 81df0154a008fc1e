package pg

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/server"
)

func open1(t testing.TB, url string) (*dlock.Client, error) {
	t.Helper()
	c, err := dlock.Open(testContext(t), url, &dlock.Options{TTL: ttl})
	if err == nil {
		t.Cleanup(func() { _ = c.Close(context.Background()) })
	}
	return c, err
}

func TestStandbyRefused(t *testing.T) {
	t.Parallel()
	s := server.Start(t, testServer)
	var dir string
	must(t, admin(t, s.Addr()).QueryRow(testContext(t), "SHOW data_directory").Scan(&dir))
	must(t, s.Stop())
	signal := filepath.Join(dir, "standby.signal")
	must(t, os.WriteFile(signal, nil, 0o666))
	must(t, os.Chmod(signal, 0o666))
	must(t, s.Restart(true))
	_, err := open1(t, "postgres://postgres@"+s.Addr()+"/postgres")
	if !errors.Is(err, dlock.ErrUnavailable) || !errors.Is(err, errStandby) {
		t.Fatalf("a standby: %v", err)
	}
	// Beside it stands a primary: that one is used.
	c, err := open1(t, "postgres://postgres@"+s.Addr()+","+shared.Addr()+"/postgres?sslmode=disable")
	must(t, err)
	works(t, c.Mutex(nameOf(t)))
}

// pgBouncer runs a pooler before the shared server and returns its address.
func pgBouncer(t *testing.T, mode string) string {
	t.Helper()
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		program = "/usr/sbin/pgbouncer"
	}
	addr := server.ReserveAddr(t)
	_, port, _ := net.SplitHostPort(addr)
	_, serverPort, _ := net.SplitHostPort(shared.Addr())
	dir := t.TempDir()
	users := filepath.Join(dir, "users")
	must(t, os.WriteFile(users, []byte(`"postgres" ""`), 0o644))
	config := filepath.Join(dir, "ini")
	must(t, os.WriteFile(config, []byte(fmt.Sprintf(
		"[databases]\n* = host=127.0.0.1 port=%s\n[pgbouncer]\nlisten_addr=127.0.0.1\nlisten_port=%s\n"+
			"unix_socket_dir=\nauth_type=trust\nauth_file=%s\npool_mode=%s\n", serverPort, port, users, mode)), 0o644))
	cmd := exec.Command(program, config)
	if os.Getuid() == 0 {
		account, err := user.Lookup("postgres")
		must(t, err)
		uid, _ := strconv.Atoi(account.Uid)
		gid, _ := strconv.Atoi(account.Gid)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
		must(t, os.Chmod(filepath.Dir(dir), 0o755))
	}
	var log strings.Builder
	cmd.Stderr = &log
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(log.String())
		}
	})
	eventually(t, "the pooler listens", func() bool {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	return addr
}

func TestTransactionPoolerRefused(t *testing.T) {
	addr := pgBouncer(t, "transaction")
	_, err := open1(t, "postgres://postgres@"+addr+"/postgres?sslmode=disable")
	if !errors.Is(err, dlock.ErrInvalidConfig) || !errors.Is(err, errPooler) {
		t.Fatalf("a pooler by transaction: %v", err)
	}
}

func TestSessionPooler(t *testing.T) {
	t.Parallel()
	addr := pgBouncer(t, "session")
	url := "postgres://postgres@" + addr + "/postgres?sslmode=disable"
	if _, err := open1(t, url); !errors.Is(err, errPooler) {
		t.Errorf("a pooler that nobody has vouched for: %v", err)
	}
	c, err := open1(t, url+"&pooler=session")
	must(t, err)
	d, err := open1(t, url+"&pooler=session")
	must(t, err)
	lease := lock(t, c.Mutex(nameOf(t), dlock.WithTTL(2*ttl)))
	p := newPeer(t, shared.Addr(), Options{}, ttl)
	next := locking(t, d.Mutex(nameOf(t)))
	a := admin(t, shared.Addr())
	eventually(t, "queued", func() bool { return inLocks(t, a, p.backend, nameOf(t), false) == 1 })
	time.Sleep(3 * ttl) // it is kept
	must(t, lease.Err())
	ctx, cancel := context.WithCancel(testContext(t))
	defer cancel()
	failed := make(chan error, 1)
	go func() {
		_, err := p.Mutex(nameOf(t)).Lock(ctx)
		failed <- err
	}()
	eventually(t, "queued behind it", func() bool { return inLocks(t, a, p.backend, nameOf(t), false) == 2 })
	cancel()
	if err := receive(t, "the end of the call", failed); !errors.Is(err, dlock.ErrHeld) {
		t.Errorf("cancelled: %v", err)
	}
	unlock(t, lease)
	unlock(t, receive(t, "the lock", next))
}

// TestRoleDefaults has the role's own settings make everything hard.
func TestRoleDefaults(t *testing.T) {
	t.Parallel()
	a := admin(t, shared.Addr())
	execute(t, a,
		"DROP ROLE IF EXISTS hasty",
		"CREATE ROLE hasty LOGIN SUPERUSER",
		"ALTER ROLE hasty SET lock_timeout = '20ms'",
		"ALTER ROLE hasty SET statement_timeout = '100ms'",
		"ALTER ROLE hasty SET idle_session_timeout = '100ms'",
		"ALTER ROLE hasty SET default_transaction_read_only = on",
		"ALTER ROLE hasty SET default_transaction_isolation = 'serializable'",
		"ALTER ROLE hasty SET search_path = ''",
	)
	p := newPeer(t, shared.Addr(), Options{}, ttl)
	c, err := open1(t, "postgres://hasty@"+shared.Addr()+"/postgres?sslmode=disable")
	must(t, err)
	lease := lock(t, p.Mutex(nameOf(t)))
	next := locking(t, c.Mutex(nameOf(t)))
	eventually(t, "queued", func() bool { return inLocks(t, a, p.backend, nameOf(t), false) == 1 })
	time.Sleep(300 * time.Millisecond) // longer than any of these would let it wait
	unlock(t, lease)
	mine := receive(t, "the lock", next)
	time.Sleep(300 * time.Millisecond)
	must(t, mine.Err())
	unlock(t, mine)
}

// TestTargetSessionAttrs opens a primary by each word of libpq for the server that is
// wanted. One who prefers a standby gets the primary where there is none.
func TestTargetSessionAttrs(t *testing.T) {
	t.Parallel()
	for target, fits := range map[string]bool{
		"any": true, "primary": true, "read-write": true, "prefer-standby": true, "standby": false, "read-only": false,
	} {
		c, err := open1(t, "postgres://postgres@"+shared.Addr()+"/postgres?sslmode=disable&target_session_attrs="+target)
		switch {
		case fits:
			must(t, err)
			works(t, c.Mutex(nameOf(t)))
		case !errors.Is(err, dlock.ErrUnavailable):
			t.Errorf("%s: %v", target, err)
		}
	}
}

// TestLoginTakenAway ends the session of a role that holds a lock and lets it log in
// no more, until it may again.
func TestLoginTakenAway(t *testing.T) {
	t.Parallel()
	s := server.Start(t, testServer)
	a := admin(t, s.Addr())
	execute(t, a, "CREATE ROLE app LOGIN SUPERUSER")
	c, err := open1(t, "postgres://app@"+s.Addr()+"/postgres?sslmode=disable")
	must(t, err)
	lease := lock(t, c.Mutex(nameOf(t)))
	ctx := lease.Context(testContext(t))

	execute(t, a, "ALTER ROLE app NOLOGIN")
	must(t, lease.Err()) // a session that is there stays
	execute(t, a, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'app'")
	<-ctx.Done()
	if err := lease.Err(); !errors.Is(err, dlock.ErrLost) {
		t.Errorf("a hold whose session was ended: %v", err)
	}
	if _, err := c.Mutex(nameOf(t)).Lock(testContext(t)); !errors.Is(err, dlock.ErrAuth) {
		t.Errorf("a lock without a login: %v", err)
	}
	execute(t, a, "ALTER ROLE app LOGIN")
	unlock(t, lock(t, c.Mutex(nameOf(t))))
}

// TestPlainRole needs CONNECT and the sequence, and is told how to get it.
func TestPlainRole(t *testing.T) {
	t.Parallel()
	s := server.Start(t, testServer)
	a := admin(t, s.Addr())
	execute(t, a, "CREATE ROLE plain LOGIN")
	url := "postgres://plain@" + s.Addr() + "/postgres?sslmode=disable"
	_, err := open1(t, url)
	if !errors.Is(err, dlock.ErrAuth) {
		t.Fatalf("without the sequence: %v", err)
	}
	_, statement, _ := strings.Cut(err.Error(), "run ")
	create, grant, _ := strings.Cut(statement, "; then ")
	execute(t, a, create)
	grant, _, _ = strings.Cut(grant, "this role")
	if _, err := open1(t, url); !errors.Is(err, dlock.ErrAuth) || !strings.Contains(err.Error(), grant) {
		t.Fatalf("without what %q grants: %v", grant, err)
	}
	execute(t, a, grant+"plain")
	c, err := open1(t, url)
	must(t, err)
	works(t, c.Mutex(nameOf(t)))
}

func TestForeignSequenceRefused(t *testing.T) {
	a := admin(t, shared.Addr())
	for schema, sequence := range map[string]string{
		"taken": "CREATE SEQUENCE taken.dlock_fence CACHE 20",
		"short": "CREATE UNLOGGED SEQUENCE short.dlock_fence INCREMENT 4096 MAXVALUE 4503599627370495",
		"alone": fmt.Sprintf("CREATE UNLOGGED SEQUENCE alone.dlock_fence INCREMENT %d", numberStep),
	} {
		execute(t, a, "DROP SCHEMA IF EXISTS "+schema+" CASCADE; CREATE SCHEMA "+schema+"; "+sequence)
		_, err := open1(t, "postgres://postgres@"+shared.Addr()+"/postgres?sslmode=disable&schema="+schema)
		if !errors.Is(err, dlock.ErrConflict) {
			t.Errorf("%s is not ours: %v", sequence, err)
		}
	}
}

// TestBadParameters opens URLs that are refused before anything is asked: no server is
// there. The error names the parameter, and not its value.
func TestBadParameters(t *testing.T) {
	for _, params := range []string{
		"pooler=canary", "parked=-1", "parked=0", "max_conns=0", "max_conns=1", "max_locks=0", "slice=canary", "slice=400us", "slice=0s",
		"slice=600h", "canary=1", "max_locks=canary", "parked=17", "parked=5&max_conns=4", "namespace=canary%00", "schema=canary%00",
		"owner=canary%00", "sslmode=canary", "sslrootcert=/canary", "connect_timeout=canary", "target_session_attrs=canary&sslmode=disable",
	} {
		_, err := open1(t, "postgres://postgres:canary@127.0.0.1:1/postgres?"+params)
		name, _, _ := strings.Cut(params, "=")
		if !errors.Is(err, dlock.ErrInvalidConfig) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", params, err)
		}
		if strings.Contains(err.Error(), "canary") && name != "canary" {
			t.Errorf("%s: the value shows: %v", params, err)
		}
	}
	for _, params := range []string{"parked=4&max_conns=4", "parked=16", "max_conns=2", "max_locks=1&slice=1ms"} {
		if _, err := open1(t, "postgres://postgres@127.0.0.1:1/postgres?"+params); !errors.Is(err, dlock.ErrUnavailable) {
			t.Errorf("%s: %v", params, err)
		}
	}
	if _, err := open1(t, "postgres://postgres@"+shared.Addr()+"/postgres?schema=nosuch"); !errors.Is(err, dlock.ErrInvalidConfig) {
		t.Errorf("no such schema: %v", err)
	}
	if _, err := newBackend(&pgx.ConnConfig{}, &Options{MaxParked: 3, MaxConns: 2}); !errors.Is(err, dlock.ErrInvalidConfig) || !strings.Contains(err.Error(), "MaxParked") {
		t.Errorf("more connections wait than there may be: %v", err)
	}
}

func TestZeroConfig(t *testing.T) {
	_, err := New(testContext(t), &pgx.ConnConfig{}, nil)
	if !errors.Is(err, dlock.ErrInvalidConfig) {
		t.Error(err)
	}
}

// TestEndBehindATolerableFailure has the server end a connection when a statement that may
// fail has failed: it is the end that counts, and says nothing of the configuration.
func TestEndBehindATolerableFailure(t *testing.T) {
	conn, err := pgconn.ConnectConfig(testContext(t), &configOf(t, shared.Addr()).Config)
	must(t, err)
	defer conn.Close(testContext(t))
	_, err = pipeline(testContext(t), conn, []step{{sql: "SELECT 1 / (pg_terminate_backend(pg_backend_pid())::int - 1)", mayFail: true}})
	if codeOf(err) != "57P01" {
		t.Errorf("the end of a connection: %v", err)
	}
}

// TestNamesInSQL has a schema whose name could be taken for something else, on a connection
// on which a backslash in a string is an escape.
func TestNamesInSQL(t *testing.T) {
	const schema = `K \' T`
	execute(t, admin(t, shared.Addr()), `DROP SCHEMA IF EXISTS "`+schema+`" CASCADE`, `CREATE SCHEMA "`+schema+`"`)
	cfg := configOf(t, shared.Addr())
	cfg.RuntimeParams["standard_conforming_strings"] = "off"
	b, err := New(testContext(t), cfg, &Options{Schema: schema})
	must(t, err)
	c, err := dlock.New(b, nil)
	must(t, err)
	works(t, c.Mutex(nameOf(t)))
	must(t, c.Close(testContext(t)))
}
