// Package integration tests the adapters of contrib with the libraries that they are for,
// on Redis and on files. It is a module of its own, so that the adapters need neither the
// backends nor the certificate authority of the tests.
package integration
