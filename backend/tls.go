package backend

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
)

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
