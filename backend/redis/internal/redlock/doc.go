// Package redlock tests package quorum on Redis servers. It has tests alone. They are in
// the module of the Redis backend, so that whoever needs the root module does not need
// go-redis.
package redlock
