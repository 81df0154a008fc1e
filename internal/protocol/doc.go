// Package protocol is a model of how dlock keeps a lock: of the scripts on a
// server, of the rules by which clients judge what they hear from it, of the
// tokens that a client hands on without asking, and of a lock on several
// servers. A [KeyQueue] and a [NodeQueue] are models of the queues on etcd and ZooKeeper.
//
// A [World] is a simulation in one goroutine with a clock of its own, so that a
// seed decides everything that happens in it. Messages are delayed, lost and
// sent again; clients crash, stop, change their minds and drift; servers lose
// their data and have their clocks set, and somebody who has looked at the lock breaks a
// hold. Labels, which decide nothing, are not in it. After each event the model compares
// what the clients believe with one another, and what the server could grant
// with who waits.
//
// Each rule can be switched off. The tests show that the model then finds what
// the rule is there to prevent.
package protocol
