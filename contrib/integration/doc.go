// Package integration tests the adapters of contrib with the libraries that they are for,
// on Redis and on files. It is a module of its own because of what that takes.
package integration
