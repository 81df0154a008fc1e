package faultnet_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/faultnet"
)

func echoServer(t *testing.T) *server {
	return serve(t, func(_ *server, c *net.TCPConn) {
		_, _ = io.Copy(c, c) // the client checks what comes back
	})
}

// exchange sends size random bytes, ends its stream and returns the checksums
// of what went out and of what came back.
func exchange(c *client, size int64) (sent, received [sha256.Size]byte, err error) {
	out, in := sha256.New(), sha256.New()
	var writing sync.WaitGroup
	var writeErr error
	writing.Go(func() {
		random := rand.NewChaCha8([32]byte{byte(size)})
		_, writeErr = io.CopyN(io.MultiWriter(c, out), random, size)
		if writeErr == nil {
			writeErr = c.CloseWrite()
		}
	})
	_, err = io.Copy(in, c)
	writing.Wait()
	if err == nil {
		err = writeErr
	}
	return [sha256.Size]byte(out.Sum(nil)), [sha256.Size]byte(in.Sum(nil)), err
}

func TestBytesIntactUnderConcurrency(t *testing.T) {
	const clients, size = 8, 1 << 20
	p := proxyTo(t, echoServer(t).addr())
	p.SetFraming(faultnet.RESP) // random bytes are not RESP: they must pass all the same
	p.Delay(faultnet.BothWays, 0, 2*time.Millisecond)
	var wg sync.WaitGroup
	for range clients {
		c := dial(t, p)
		wg.Go(func() {
			sent, received, err := exchange(c, size)
			if err != nil || sent != received {
				t.Errorf("sent %x, received %x, %v", sent, received, err)
			}
		})
	}
	wg.Wait()
	eventually(t, "connections end", func() bool { return p.Stats().Live == 0 })
	got := p.Stats()
	if got.Accepted != clients || got.ToServer != clients*size || got.ToClient != clients*size {
		t.Fatalf("stats: %+v", got)
	}
}

func TestThroughput(t *testing.T) {
	const size = 64 << 20
	p := proxyTo(t, echoServer(t).addr())
	start := time.Now()
	sent, received, err := exchange(dial(t, p), size)
	check(t, err)
	if sent != received {
		t.Fatal("bytes differ")
	}
	t.Logf("%.0f MB/s each way", size/1e6/time.Since(start).Seconds())
}

func TestHalfCloseOfClient(t *testing.T) {
	s := serve(t, func(_ *server, c *net.TCPConn) {
		all, err := io.ReadAll(c) // returns only when the half-close arrives
		fmt.Fprintf(c, "%s %v\n", all, err)
	})
	c := dial(t, proxyTo(t, s.addr()))
	c.send("request")
	check(t, c.CloseWrite())
	c.want("request <nil>")
	if _, err := c.in.ReadByte(); err != io.EOF {
		t.Fatalf("got %v, want EOF", err)
	}
}

func TestHalfCloseOfServer(t *testing.T) {
	got := make(chan string, 1)
	s := serve(t, func(_ *server, c *net.TCPConn) {
		fmt.Fprintln(c, "bye")
		if err := c.CloseWrite(); err != nil {
			got <- err.Error()
			return
		}
		all, err := io.ReadAll(c)
		got <- fmt.Sprintf("%s %v", all, err)
	})
	c := dial(t, proxyTo(t, s.addr()))
	c.want("bye")
	if _, err := c.in.ReadByte(); err != io.EOF {
		t.Fatalf("got %v, want EOF", err)
	}
	c.send("still here")
	check(t, c.CloseWrite())
	if text := <-got; text != "still here <nil>" {
		t.Fatalf("server got %q", text)
	}
}

func TestResetOfServerReachesClient(t *testing.T) {
	s := serve(t, eachLine(func(c *net.TCPConn, _ string) {
		if err := c.SetLinger(0); err != nil {
			t.Error(err)
		}
		c.Close()
	}))
	c := dial(t, proxyTo(t, s.addr()))
	c.send("a\n")
	c.wantReset()
}

func TestUnreachableTargetResets(t *testing.T) {
	s := lineServer(t)
	s.close()
	p := proxyTo(t, s.addr())
	if err := dialAndRead(p); !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("got %v, want a reset", err)
	}

	back := lineServer(t)
	p.SetTarget(back.addr())
	c := dial(t, p)
	c.send("a\n")
	c.want("ok a")
}

// dialAndRead returns the error of a connect, which a reset can overtake, or
// else of the first read.
func dialAndRead(p *faultnet.Proxy) error {
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Read(make([]byte, 1))
	return err
}

func TestSetTargetLeavesLiveConnections(t *testing.T) {
	one, two := lineServer(t), lineServer(t)
	p := proxyTo(t, one.addr())
	old := dial(t, p)
	old.send("a\n")
	old.want("ok a")
	p.SetTarget(two.addr())
	fresh := dial(t, p)
	fresh.send("b\n")
	fresh.want("ok b")
	old.send("c\n")
	old.want("ok c")
	wantLines(t, one, "a", "c")
	wantLines(t, two, "b")
}

func TestOnRequest(t *testing.T) {
	p := proxyTo(t, lineServer(t).addr())
	p.SetFraming(lines)
	var mu sync.Mutex
	var seen bytes.Buffer
	p.OnRequest(func(conn int, req []byte) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(&seen, "%d:%s", conn, req)
	})
	one := dial(t, p)
	one.send("a\nb")
	one.want("ok a")
	two := dial(t, p)
	two.send("c\n")
	two.want("ok c")
	one.send("b\n")
	one.want("ok bb")
	p.OnRequest(nil)
	one.send("d\n")
	one.want("ok d")
	mu.Lock()
	defer mu.Unlock()
	if got := seen.String(); got != "1:a\n2:c\n1:bb\n" {
		t.Fatalf("observer saw %q", got)
	}
	if got := p.Stats(); got.Requests != 4 || got.Accepted != 2 || got.Live != 2 || got.ToServer != 9 || got.ToClient != 21 {
		t.Fatalf("stats: %+v", got)
	}
}

func TestCloseEndsEverything(t *testing.T) {
	s := lineServer(t)
	p := proxyTo(t, s.addr())
	p.Blackhole(faultnet.ToClient)
	stuck := dial(t, p)
	stuck.send("a\n")
	wantLines(t, s, "a")
	p.Blackhole(faultnet.ToServer)
	silent := dial(t, p)
	silent.send("b\n")
	eventually(t, "both are live", func() bool { return p.Stats().Live == 2 })
	check(t, p.Close())
	stuck.wantReset()
	silent.wantReset()
	if live := p.Stats().Live; live != 0 {
		t.Fatalf("%d live connections after Close", live)
	}
	if _, err := net.Dial("tcp", p.Addr()); err == nil {
		t.Fatal("connected after Close")
	}
	check(t, p.Admit()) // stays closed
	if _, err := net.Dial("tcp", p.Addr()); err == nil {
		t.Fatal("connected after Close and Admit")
	}
}
