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

// angryURL is the environment variable with which TestGRPCLog calls itself.
const angryURL = "DLOCK_TEST_ANGRY_URL"

// TestGRPCLog has a process open a client whose server sends what gRPC calls an error. That
// goes to the client's logger, and not to stderr; without a logger it goes where gRPC logs by
// itself.
func TestGRPCLog(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go beAngry(listener)
	for _, logged := range []string{"yes", "no"} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestOpenAngryServer$", "-test.v")
		cmd.Env = append(os.Environ(), angryURL+"=etcd://"+listener.Addr().String(), "DLOCK_TEST_LOGGED="+logged)
		var out, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &stderr
		if err := cmd.Run(); err != nil {
			t.Fatalf("%v: %s%s", err, &out, &stderr)
		}
		const said = "too_many_pings"
		if has := strings.Contains(out.String(), said); has != (logged == "yes") {
			t.Errorf("logger %s: it was told: %v: %s", logged, has, &out)
		}
		if has := strings.Contains(stderr.String(), said); has != (logged == "no") {
			t.Errorf("logger %s: on stderr: %v: %s", logged, has, &stderr)
		}
	}
}

// beAngry is a server that sends away who connects.
func beAngry(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			debug := "too_many_pings"
			settings := []byte{0, 0, 0, 4, 0, 0, 0, 0, 0}
			goAway := append([]byte{0, 0, byte(8 + len(debug)), 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xb}, debug...)
			_, _ = conn.Write(append(settings, goAway...))
			_, _ = io.Copy(io.Discard, conn)
		}()
	}
}

// TestOpenAngryServer is what the process of TestGRPCLog does.
func TestOpenAngryServer(t *testing.T) {
	where := os.Getenv(angryURL)
	if where == "" {
		t.Skip("part of TestGRPCLog")
	}
	u, err := backend.ParseURL(where)
	if err != nil {
		t.Fatal(err)
	}
	cfg := backend.Config{URL: u, TTL: 10 * time.Second}
	log, logged := canary.Log()
	if os.Getenv("DLOCK_TEST_LOGGED") == "yes" {
		cfg.Logger = log
	}
	if b, err := backend.Open(context.Background(), cfg); err == nil {
		t.Fatal(b)
	}
	fmt.Println(logged())
	if n := len(listeners.all); n != 0 {
		t.Errorf("%d loggers are left", n)
	}
}
