package backend

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
)

// TakeTLS takes the parameters ca, cert and key, and returns what they say, or c.TLS. It is nil
// for a connection that is not encrypted: without either, unless encrypted says otherwise.
func (c *Config) TakeTLS(encrypted bool) (*tls.Config, error) {
	p := &c.URL.Params
	ca, cert, key := p.Take("ca", ""), p.Take("cert", ""), p.Take("key", "")
	files := ca != "" || cert != "" || key != ""
	switch {
	case c.TLS != nil && files:
		return nil, badURL("TLS is given in the URL and in Options")
	case c.TLS != nil:
		return c.TLS.Clone(), nil
	case encrypted:
		return ReadTLS(ca, cert, key)
	case files:
		return nil, badURL("ca, cert and key need a connection that is encrypted")
	}
	return nil, nil
}

// ReadTLS returns a TLS configuration from PEM files, as the parameters of a URL
// name them: ca has the authorities to trust in place of the system's, cert and key
// the client's certificate. Empty names leave either part out. A file that cannot be
// used is ErrInvalidConfig.
func ReadTLS(ca, cert, key string) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return nil, Fail(ErrInvalidConfig, err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, Fail(ErrInvalidConfig, errors.New("URL: the ca file has no certificate"))
		}
	}
	if cert != "" || key != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, Fail(ErrInvalidConfig, err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}
