// Package chaos tests locks while processes, connections and servers fail.
//
// Worker processes, each with several callers, lock and unlock without pause. They
// write down what they ask and what they are told, with the time of the machine's
// monotonic clock, which all processes share. A nemesis meanwhile picks faults by a
// seed: it kills and stops workers and servers, cuts connections and loses replies.
// After each fault it heals what it broke, and waits for a checkpoint: every caller has
// held a lock anew. Then the histories are checked: that nobody held a lock beside
// somebody else, that tokens grew, that a fenced store took no late write, that every
// error was true.
//
// An executor is a worker that does what a test commands. With two of them, holder and
// rival, a test sees whether a holder that is cut off or stopped knows of its loss before
// the rival has the lock.
//
// What a fault does by nature is allowed for and nothing else: a process that
// was stopped can believe what is over, and a server that lost its data can
// grant what is held. The fenced store has to be right even then.
package chaos
