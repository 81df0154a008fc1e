package pg

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"

	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net/http/httptest"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/server"
)

// TestTLS reaches a server by its address, which the certificate names, and by
// another name of the caller's.
func TestTLS(t *testing.T) {
	t.Parallel()
	certified := httptest.NewUnstartedServer(nil)
	certified.StartTLS()
	defer certified.Close()
	roots := x509.NewCertPool()
	roots.AddCert(certified.Certificate())

	cert, key := pemFiles(t, certified.TLS.Certificates[0])
	s := server.Start(t, server.Postgres{Settings: []string{"ssl=on", "ssl_cert_file=" + cert, "ssl_key_file=" + key}})
	for _, name := range []string{"", "example.com"} {
		c, err := dlock.Open(testContext(t), "postgres://postgres@"+s.Addr()+"/postgres", &dlock.Options{TLS: &tls.Config{RootCAs: roots, ServerName: name}})
		must(t, err)
		works(t, c.Mutex(nameOf(t)))
		must(t, c.Close(testContext(t)))
	}
}

// pemFiles writes what a server reads, that may run as another user than the test.
func pemFiles(t testing.TB, c tls.Certificate) (cert, key string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "dlock-tls-")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	must(t, os.Chmod(dir, 0o755))
	der, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	must(t, err)
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	must(t, os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate[0]}), 0o644))
	must(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600))
	if os.Getuid() == 0 {
		postgres, err := user.Lookup("postgres")
		must(t, err)
		uid, err := strconv.Atoi(postgres.Uid)
		must(t, err)
		must(t, os.Chown(key, uid, -1))
	}
	return cert, key
}

// TestTLSUnlessLocal looks at what is made of URLs that say nothing of TLS.
func TestTLSUnlessLocal(t *testing.T) {
	t.Setenv("PGSSLMODE", "")
	for url, plain := range map[string]bool{
		"postgres://app:secret@db.example.com/x":                     false,
		"postgres://app:secret@127.0.0.1,db.example.com/x":           false,
		"postgres://app:secret@db.example.com/x?sslmode=":            false,
		"postgres://app:secret@10.0.0.1/x":                           false,
		"postgres:///x?host=10.0.0.1":                                false,
		"postgres://app:secret@db.example.com/x?sslmode=verify-full": false,
		"postgres://app:secret@db.example.com/x?sslmode=disable":     true,
		"postgres://app:secret@db.example.com/x?sslmode=prefer":      true,
		"postgres://app:secret@127.0.0.1/x":                          true,
		"postgres://app:secret@[::1]:5433/x":                         true,
		"postgres://app:secret@localhost/x":                          true,
		"postgres:///x?host=/var/run/postgresql":                     true,
	} {
		u, err := backend.ParseURL(url)
		must(t, err)
		_, cfg, err := parse(backend.Config{URL: u})
		must(t, err)
		got := cfg.TLSConfig == nil
		for _, f := range cfg.Fallbacks {
			got = got || f.TLSConfig == nil
		}
		if got != plain {
			t.Errorf("%s: plain text allowed: %v", url, got)
		}
	}
}

// TestServiceKeepsItsTLS has the sslmode come from a service that the environment names.
func TestServiceKeepsItsTLS(t *testing.T) {
	t.Setenv("PGSSLMODE", "")
	t.Setenv("PGSERVICE", "locks")
	file := filepath.Join(t.TempDir(), "services")
	t.Setenv("PGSERVICEFILE", file)
	for mode, want := range map[string][]int{
		"":                      {1},
		"sslmode=prefer":        {1},
		"sslmode=require":       {1},
		"sslmode=verify-full":   {2},
		"sslmode=allow":         {0, 1},
		"sslmode=disable":       {0},
		"sslnegotiation=direct": {1},
		"sslmode=verify-full\nsslnegotiation=direct": {2},
	} {
		must(t, os.WriteFile(file, []byte("[locks]\nhost=db.example.com\n"+mode+"\n"), 0o600))
		for _, url := range []string{"postgres:///x", "postgres://app:secret@db.example.com/x"} {
			u, err := backend.ParseURL(url)
			must(t, err)
			_, cfg, err := parse(backend.Config{URL: u})
			must(t, err)
			if got := strengths(cfg); !slices.Equal(got, want) {
				t.Errorf("%s, %q: connections demand %v, want %v", url, mode, got, want)
			}
		}
	}
}

// TestPasswordNeedsProof looks at whether a server may ask for the password as it is.
func TestPasswordNeedsProof(t *testing.T) {
	t.Setenv("PGSSLMODE", "")
	certified := httptest.NewUnstartedServer(nil)
	certified.StartTLS()
	defer certified.Close()
	cert, _ := pemFiles(t, certified.TLS.Certificates[0])
	for params, want := range map[string]string{
		"":                            "!password",
		"?sslrootcert=" + cert:        "",
		"?sslmode=require":            "",
		"?sslmode=verify-full":        "",
		"?require_auth=password":      "password",
		"?require_auth=scram-sha-256": "scram-sha-256",
	} {
		u, err := backend.ParseURL("postgres://app:secret@db.example.com/x" + params)
		must(t, err)
		_, cfg, err := parse(backend.Config{URL: u})
		must(t, err)
		if cfg.RequireAuth != want {
			t.Errorf("%q: require_auth is %q, want %q", params, cfg.RequireAuth, want)
		}
	}
}

// TestPasswordIsNotSentInPlain has a server that says it has no TLS, and asks for the
// password as it is.
func TestPasswordIsNotSentInPlain(t *testing.T) {
	t.Setenv("PGSSLMODE", "")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	told := make(chan string, 16)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go askForPassword(c, told)
		}
	}()
	for _, params := range []string{"", "?sslmode=require", "?sslmode=verify-full"} {
		_, err := open1(t, "postgres://app:s3cret@"+l.Addr().String()+"/db"+params)
		if err == nil || strings.Contains(err.Error(), "s3cret") || errors.Is(err, dlock.ErrInvalidConfig) {
			t.Errorf("%s: %v", params, err)
		}
		select {
		case password := <-told:
			t.Errorf("%q was told %q", params, password)
		default:
		}
	}
}

// askForPassword is a server, until it has been told.
func askForPassword(c net.Conn, told chan<- string) {
	defer c.Close()
	for {
		head := make([]byte, 4)
		if _, err := io.ReadFull(c, head); err != nil {
			return
		}
		body := make([]byte, binary.BigEndian.Uint32(head)-4)
		if _, err := io.ReadFull(c, body); err != nil {
			return
		}
		const wantsTLS = 80877103
		if binary.BigEndian.Uint32(body) == wantsTLS {
			_, _ = c.Write([]byte{'N'})
			continue
		}
		_, _ = c.Write([]byte{'R', 0, 0, 0, 8, 0, 0, 0, 3}) // in plain text
		answer := make([]byte, 5)
		if _, err := io.ReadFull(c, answer); err != nil {
			return
		}
		password := make([]byte, binary.BigEndian.Uint32(answer[1:])-4)
		_, _ = io.ReadFull(c, password)
		told <- string(password)
		return
	}
}
