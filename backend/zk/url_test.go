package zk_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend/zk"
)

func TestURL(t *testing.T) {
	open := func(url string) error {
		c, err := dlock.Open(testContext(t), url, nil)
		if err != nil {
			return err
		}
		defer c.Close(testContext(t))
		lease, err := c.Mutex("m").Lock(testContext(t))
		if err != nil {
			return err
		}
		return lease.Unlock(testContext(t))
	}
	root := shared.Addr() + rootOf(t)
	must(t, open("zk://"+root))
	must(t, open("zk://alice:s%2Fcret@"+root+"/own/?session=5s&strict=true&ensemble=true"))
	wantError(t, open("zk://alice:other@"+root+"/own"), dlock.ErrAuth)
	must(t, open("zk://alice:other@"+root+"/open?acl=open"))
	must(t, open("zk://"+root+"/open"))
	must(t, open("zk://"+root+"/open?ca=&cert=&key="))
	for _, bad := range []string{
		"zk://", "zk:///root", "zk://" + root + "?nosuch=1", "zk://" + root + "?session=soon", "zk://" + root + "?strict=2",
		"zk://" + root + "?acl=creator", "zk://" + root + "?acl=none", "zk://" + root + "//twice",
	} {
		wantError(t, open(bad), dlock.ErrInvalidConfig)
	}
}

// TestOpenWhereNoServerIs: Open says why, and does not wait for the driver, which tries for
// ever.
func TestOpenWhereNoServerIs(t *testing.T) {
	for url, want := range map[string]string{
		"zk://127.0.0.1:1":                    "connection refused",
		"zk://127.0.0.1:1,127.0.0.1:2":        "127.0.0.1:2: connect: connection refused",
		"zk://" + shared.Addr() + "?tls=true": "EOF",
	} {
		begun := time.Now()
		c, err := dlock.Open(testContext(t), url, nil)
		if err == nil {
			_ = c.Close(testContext(t))
		}
		wantError(t, err, dlock.ErrUnavailable)
		if !strings.Contains(err.Error(), want) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v after %v", url, err, time.Since(begun))
		}
	}
	// One that is slow may yet answer.
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer ln.Close()
	_, err = dlock.Open(testContext(t), "zk://127.0.0.1:1,"+ln.Addr().String()+"?tls=true", nil)
	wantError(t, err, dlock.ErrUnavailable, context.DeadlineExceeded)
	if !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("a server that says nothing, and none: %v", err)
	}
}

// TestTLS reaches the server through a tunnel that ends the encryption.
func TestTLS(t *testing.T) {
	certified := httptest.NewUnstartedServer(nil)
	certified.StartTLS()
	defer certified.Close()
	ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: certified.TLS.Certificates})
	must(t, err)
	tunnel(t, ln, shared.Addr())
	roots := x509.NewCertPool()
	roots.AddCert(certified.Certificate())
	c := connect(t, &zk.Options{TLS: &tls.Config{RootCAs: roots}}, ln.Addr().String())
	unlock(t, lock(t, c.Mutex("m")))

	ctx, cancel := context.WithTimeout(testContext(t), connectShort)
	defer cancel()
	_, err = zk.Connect(ctx, []string{ln.Addr().String()}, &zk.Options{TLS: &tls.Config{}})
	wantError(t, err, dlock.ErrUnavailable)
}

// TestTLSFiles gives the files of certificates in the URL.
func TestTLSFiles(t *testing.T) {
	certified := httptest.NewUnstartedServer(nil)
	certified.StartTLS()
	defer certified.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	must(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certified.Certificate().Raw}), 0o600))
	ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: certified.TLS.Certificates})
	must(t, err)
	tunnel(t, ln, shared.Addr())
	url := "zk://" + ln.Addr().String() + rootOf(t)
	c, err := dlock.Open(testContext(t), url+"?ca="+ca, nil)
	must(t, err)
	unlock(t, lock(t, c.Mutex("m")))
	must(t, c.Close(testContext(t)))
	for _, bad := range []string{"?ca=/nowhere", "?cert=" + ca, "?key=" + ca, "?tls=false&ca=" + ca, "?tls=true&ca=" + ca + "&cert=" + ca + "&key=" + ca} {
		_, err := dlock.Open(testContext(t), url+bad, nil)
		wantError(t, err, dlock.ErrInvalidConfig)
	}
	_, err = dlock.Open(testContext(t), url+"?ca="+ca, &dlock.Options{TLS: &tls.Config{}})
	wantError(t, err, dlock.ErrInvalidConfig)
}

func tunnel(t testing.TB, ln net.Listener, target string) {
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			client, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer client.Close()
				server, err := net.Dial("tcp", target)
				if err != nil {
					return
				}
				defer server.Close()
				go func() { _, _ = io.Copy(server, client) }()
				_, _ = io.Copy(client, server)
			}()
		}
	}()
}

// connectShort is enough for a connection that must not come about.
const connectShort = 500 * time.Millisecond
