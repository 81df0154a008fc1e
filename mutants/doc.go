// Package mutants keeps seeded bugs: each is one known trap of distributed
// locks, as a small change to the code that must turn a named test red. Nothing
// of them is in the code itself: a mutant is built with go's -overlay.
//
//	make mutants                 # every one; writes docs/mutants.md
//	make mutants MUTANT=redis-   # those whose name matches
//
// A mutant is a file name.mutant:
//
//	trap: what is wrong with it, in one line
//	test: ./package TestName/Subtest -flag=of-the-test
//	hangs: what the test waits for in vain
//	file: path/of/what/it/changes.go
//	@@
//	 a line that stays
//	-a line that goes
//	+a line that comes
//
// The lines of a hunk that stay or go must be found in the file just once. A
// file may have several hunks, and a mutant several files.
//
// The mutant is caught if the named test fails, and passes without it. A
// mutant that does not compile, or hangs until the runner's limit, or ends the
// test's process by something else than a failure of that test, is not caught.
// Nor is one whose test fails by its own limit: on a slow machine every test
// may. Only where hanging is what the trap does, and hangs says so, that counts.
package mutants
