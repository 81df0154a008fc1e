package server

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http/httptest"
	"sync"
	"testing"
)

// A Certified is somebody who ends the encryption before servers that have
// none.
type Certified struct {
	Roots *x509.CertPool // trusts it

	certificates []tls.Certificate
}

// NewCertified returns one with a certificate of its own, for 127.0.0.1.
func NewCertified() *Certified {
	s := httptest.NewUnstartedServer(nil)
	s.StartTLS()
	defer s.Close()
	c := &Certified{Roots: x509.NewCertPool(), certificates: s.TLS.Certificates}
	c.Roots.AddCert(s.Certificate())
	return c
}

// Tunnel carries what comes in, at the address that it returns, to target, until
// the test ends.
func (c *Certified) Tunnel(t testing.TB, target string) (addr string) {
	t.Helper()
	ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: c.certificates})
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	t.Cleanup(func() { _ = ln.Close(); all.Wait() })
	all.Go(func() {
		for {
			in, err := ln.Accept()
			if err != nil {
				return
			}
			all.Go(func() { join(in, target) })
		}
	})
	return ln.Addr().String()
}

func join(in net.Conn, target string) {
	defer in.Close()
	out, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer out.Close()
	go func() { _, _ = io.Copy(out, in); _ = out.Close() }()
	_, _ = io.Copy(in, out)
}
