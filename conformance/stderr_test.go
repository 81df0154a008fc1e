package conformance_test

import (
	"bytes"
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/canary"
	"github.com/dlock-go/dlock/internal/faultnet"
)

// stderrURL is the environment variable with which TestStderr calls itself: the URL of the
// server that TestUseServer uses.
const stderrURL = "DLOCK_TEST_STDERR_URL"

// TestStderr has a process open a client whose server then goes away. The driver must
// not write to stderr behind the back of Options.Logger.
func TestStderr(t *testing.T) {
	for _, name := range chosen(t) {
		if name == "memory" || name == "file" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			where := targets[name].harness(t).URL
			u, err := url.Parse(where)
			must(t, err)
			if !strings.Contains(u.Host, ",") {
				proxy, err := faultnet.Listen(u.Host)
				must(t, err)
				defer proxy.Close()
				u.Host = proxy.Addr()
				defer time.AfterFunc(1500*time.Millisecond, func() { _ = proxy.Close() }).Stop()
			}
			cmd := exec.Command(os.Args[0], "-test.run=^TestUseServer$", "-test.timeout=1m")
			cmd.Env = append(os.Environ(), stderrURL+"="+u.String())
			var out, stderr bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &stderr
			if err := cmd.Run(); err != nil {
				t.Errorf("%v: %s", err, &out)
			}
			if stderr.Len() > 0 {
				t.Errorf("on stderr: %s", &stderr)
			}
			t.Logf("%s", &out)
		})
	}
}

// TestUseServer is what the process of TestStderr does: for three seconds it asks for
// locks, whatever the answer.
func TestUseServer(t *testing.T) {
	where := os.Getenv(stderrURL)
	if where == "" {
		t.Skip("part of TestStderr")
	}
	log, logged := canary.Log()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	c, err := dlock.Open(ctx, where, &dlock.Options{TTL: time.Second, Logger: log})
	must(t, err)
	held, err := c.Mutex("stderr/held").Lock(ctx)
	must(t, err)
	for ctx.Err() == nil {
		if lease, err := c.Mutex("stderr").TryLock(ctx); err == nil {
			_ = lease.Unlock(ctx)
		}
		time.Sleep(20 * time.Millisecond)
	}
	_ = held.Unlock(ctx)
	_ = c.Close(ctx)
	fmt.Println(logged())
}
