// Release makes a release of every module of this repository that people require: all of
// them with one version, so that one need not know which fits which.
//
//	GOWORK=off go -C tools/release run . -n v0.2.0   # tries it, and changes nothing
//	GOWORK=off go -C tools/release run . v0.2.0      # makes one commit and the tags
//
// It works on a clone. There it writes the version into the requirements of each module,
// lays the modules out as a module proxy in a folder, in the order of their requirements,
// and completes go.sum of cmd/dlock, which has no replace directives. Then it does with
// that proxy what users do: go install of the command, and a program that requires the
// root and one backend. Only if all of that works does it commit and tag, and only what
// people push is public.
package main
