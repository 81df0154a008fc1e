package pg

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/clock"
	"github.com/dlock-go/dlock/internal/server"
)

// tenantEnv makes the test binary the client of a host that is to vanish. Its
// value is the URL of the server.
const tenantEnv = "DLOCK_PG_TENANT"

// TestHostVanishes has the holder's host go without a word, as one does whose
// power fails: nobody answers for it, not even to say that it has gone. The
// server frees its lock all the same, and not before the holder knows.
func TestHostVanishes(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	s := server.Start(t, server.Postgres{Settings: []string{"listen_addresses=127.0.0.1," + h.gateway, "hba_file=" + trust(t)}})
	_, port, err := net.SplitHostPort(s.Addr())
	must(t, err)
	tenant := h.command(os.Args[0])
	tenant.Env = append(os.Environ(), tenantEnv+"=postgres://postgres@"+net.JoinHostPort(h.gateway, port)+"/postgres?sslmode=disable")
	tenant.Stderr = os.Stderr
	out, err := tenant.StdoutPipe()
	must(t, err)
	must(t, tenant.Start())
	t.Cleanup(func() { _ = tenant.Process.Kill(); _ = tenant.Wait() })
	said := bufio.NewScanner(out)
	if !said.Scan() || said.Text() != "held" {
		t.Fatalf("the tenant says %q, %v", said.Text(), said.Err())
	}

	client, err := dlock.Open(testContext(t), "postgres://postgres@"+s.Addr()+"/postgres?sslmode=disable", &dlock.Options{TTL: tenantTTL})
	must(t, err)
	t.Cleanup(func() { _ = client.Close(context.Background()) })
	_, err = client.Mutex("job").TryLock(testContext(t))
	if !errors.Is(err, dlock.ErrHeld) {
		t.Fatalf("the tenant holds the lock, and TryLock says %v", err)
	}
	h.vanish()
	lease, err := client.Mutex("job").Lock(testContext(t))
	must(t, err)
	granted := clock.Now()

	var lost int64
	if !said.Scan() {
		t.Fatalf("the tenant says nothing, %v", said.Err())
	}
	if _, err := fmt.Sscanf(said.Text(), "lost %d", &lost); err != nil || lost >= granted {
		t.Errorf("the tenant says %q, the next was granted the lock at %d", said.Text(), granted)
	}
	must(t, lease.Unlock(testContext(t)))
}

const tenantTTL = 2 * time.Second

// tenant holds a lock, and says when it knows that it does so no more.
func tenant(url string) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	client, err := dlock.Open(ctx, url, &dlock.Options{TTL: tenantTTL})
	if err != nil {
		return err
	}
	lease, err := client.Mutex("job").Lock(ctx)
	if err != nil {
		return err
	}
	fmt.Println("held")
	<-lease.Done()
	fmt.Println("lost", clock.Now())
	return nil
}

// trust is a file that lets everybody in, where the server may read it.
func trust(t *testing.T) string {
	dir, err := os.MkdirTemp("", "dlock-hba-")
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	must(t, os.Chmod(dir, 0o755))
	path := filepath.Join(dir, "hba")
	must(t, os.WriteFile(path, []byte("host all all 0.0.0.0/0 trust\n"), 0o644))
	return path
}

// A host is a network namespace, and a cable between it and this machine.
type host struct {
	testing.TB
	name, cable string
	gateway     string // this machine, as the host sees it
}

// newHost needs root, and a machine that lets root do this.
func newHost(t testing.TB) *host {
	id := os.Getpid() % 64516
	net := fmt.Sprintf("10.%d.%d.", 200+id/254%54, id%254)
	h := &host{t, fmt.Sprintf("dlock-%d", os.Getpid()), fmt.Sprintf("dl%d", os.Getpid()), net + "1"}
	h.permitted("netns", "add", h.name)
	t.Cleanup(func() {
		_, _ = h.ip("link", "del", h.cable)
		h.must("netns", "del", h.name)
	})
	h.permitted("link", "add", h.cable, "type", "veth", "peer", "name", "eth0", "netns", h.name)
	h.must("addr", "add", h.gateway+"/30", "dev", h.cable)
	h.must("link", "set", h.cable, "up")
	h.must("-n", h.name, "addr", "add", net+"2/30", "dev", "eth0")
	h.must("-n", h.name, "link", "set", "eth0", "up")
	return h
}

// vanish pulls the cable out.
func (h *host) vanish() { h.must("link", "set", h.cable, "down") }

// command is a program that runs on the host.
func (h *host) command(program string) *exec.Cmd {
	return exec.Command(ipProgram(), "netns", "exec", h.name, program)
}

// permitted is must, but for a machine that does not let this user do it.
func (h *host) permitted(args ...string) {
	h.Helper()
	if said, err := h.ip(args...); err != nil && notPermitted.MatchString(said) {
		h.Skipf("ip %s: %v: %s", strings.Join(args, " "), err, said)
	} else if err != nil {
		h.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, said)
	}
}

var notPermitted = regexp.MustCompile(`(?i)not permitted|permission denied`)

func (h *host) must(args ...string) {
	h.Helper()
	if said, err := h.ip(args...); err != nil {
		h.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, said)
	}
}

func (h *host) ip(args ...string) (string, error) {
	said, err := exec.Command(ipProgram(), args...).CombinedOutput()
	return string(said), err
}

func ipProgram() string {
	if path, err := exec.LookPath("ip"); err == nil {
		return path
	}
	return "/usr/sbin/ip"
}
