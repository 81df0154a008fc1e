package etcd

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/canary"
)

// LoggedEnv is the environment variable with which TestGRPCLog calls OpenAngry in a
// process of its own. It says whether the client has a logger.
const LoggedEnv = "DLOCK_TEST_LOGGED"

// TestGRPCLog has a process open a client whose server sends what gRPC calls an error. That
// goes to the client's logger, and not to stderr; without a logger it goes where gRPC logs by
// itself.
func TestGRPCLog(t *testing.T) {
	t.Parallel()
	for _, logged := range []string{"yes", "no"} {
		const said = "too_many_pings"
		var out, stderr string
		toLogger, toStderr := false, false
		for end := time.Now().Add(5 * time.Minute); !toLogger && !toStderr; { // Open may give up before it is told
			if time.Now().After(end) {
				t.Fatalf("logger %s: nothing is said: %s%s", logged, out, stderr)
			}
			out, stderr = runAngry(t, logged)
			toLogger, toStderr = strings.Contains(out, said), strings.Contains(stderr, said)
		}
		if toLogger != (logged == "yes") || toStderr != (logged == "no") {
			t.Errorf("logger %s: it was told: %v: %s; on stderr: %v: %s", logged, toLogger, out, toStderr, stderr)
		}
	}
}

// TestLateLines has gRPC log something after a client was closed. Later lines are of others.
func TestLateLines(t *testing.T) {
	var all loggers
	log, told := canary.Log()
	all.add(log)()
	if !all.log("late") {
		t.Error("what a connection says that is being closed goes to stderr")
	}
	if told() != "" {
		t.Errorf("the logger of a closed client was told %q", told())
	}
	all.left = all.left.Add(-lateLines)
	if all.log("other") {
		t.Error("what the connections of others say goes nowhere")
	}
}

// runAngry returns what the process of OpenAngry prints.
func runAngry(t *testing.T, logged string) (out, stderr string) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), LoggedEnv+"="+logged)
	var outBuf, errBuf bytes.Buffer
	cmd.Stdout, cmd.Stderr = &outBuf, &errBuf
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s%s", err, &outBuf, &errBuf)
	}
	return outBuf.String(), errBuf.String()
}

// OpenAngry opens a client of a server that sends it away, until the client has heard it,
// and prints what its logger is told.
func OpenAngry(logged string) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer listener.Close()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer cancel()
				beAngry(conn)
			}()
		}
	}()
	u, err := backend.ParseURL("etcd://" + listener.Addr().String())
	if err != nil {
		return err
	}
	cfg := backend.Config{URL: u, TTL: 10 * time.Second}
	log, told := canary.Log()
	if logged == "yes" {
		cfg.Logger = log
	}
	if b, err := backend.Open(ctx, cfg); err == nil {
		return fmt.Errorf("opened: %v", b)
	}
	fmt.Println(told())
	listeners.mu.Lock()
	defer listeners.mu.Unlock()
	if n := len(listeners.all); n != 0 {
		return fmt.Errorf("%d loggers are left", n)
	}
	return nil
}

// beAngry sends away who has connected, and returns when that one has hung up. gRPC
// connects again at once, and may hear from that connection when its client is closed.
func beAngry(conn net.Conn) {
	defer conn.Close()
	debug := "too_many_pings"
	settings := []byte{0, 0, 0, 4, 0, 0, 0, 0, 0}
	goAway := append([]byte{0, 0, byte(8 + len(debug)), 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xb}, debug...)
	_, _ = conn.Write(append(settings, goAway...))
	_, _ = io.Copy(io.Discard, conn)
}
