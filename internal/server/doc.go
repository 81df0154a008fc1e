// Package server runs real servers for tests: redis, etcd, ZooKeeper and
// Postgres as child processes on loopback ports, with their data below one
// temporary directory.
//
// A test starts a server with [Start]; a TestMain that shares one between many
// tests uses [New] and [Server.Close]. Several servers that form one service
// are a [Replicated], a [Watched] or a [Cluster]; [StartAll] runs strangers. No
// server and no data outlives the test binary, whichever way the binary ends: a
// small shell process waits for that end and then cleans up.
package server
