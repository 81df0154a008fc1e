// Package simulation looks for faults that no test has named. Real clients of the
// library, with go-redis and the scripts as they are, run in virtual time (package
// testing/synctest) against simulated servers, on a network and with servers that do what
// networks and servers do. What is promised is checked all the time.
//
// A seed makes a [Plan]: the clients, what they call, what breaks and when. A plan
// runs in a [World], and whatever a party asks, is told and believes goes through the
// register of that world, which knows the truth: it reads the server's data after each
// command. Of a plan that fails, faults and calls are taken away for as long as it
// still fails; what is left is printed as a table with a column for each party.
//
//	make simulate DURATION=10m             # random seeds
//	make simulate DURATION=1m SEED=17      # from one seed on
//
// It is a module of its own, so that nobody who uses the library inherits the server.
// The order of goroutines that are ready at one virtual moment is the scheduler's: a
// seed gives the same plan each time, and not always the same history.
package simulation
