package pg

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net/http/httptest"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/server"
)

// TestTLS reaches a server by its address, which the certificate names, and by
// another name of the caller's.
func TestTLS(t *testing.T) {
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
