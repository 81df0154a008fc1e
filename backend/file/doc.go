// Package file keeps locks in the files of one directory, for the processes of
// one machine. It needs no server.
//
// # URL
//
// file:///var/lock/app names the directory; it is created with mode 0700 if it
// is missing. file:// alone is a directory of the user's own, /tmp/dlock-<uid>,
// the same for every process whatever its environment. There are no parameters.
//
// The directory must be a real one, not a symbolic link, belong to the user,
// and not be writable for anybody else, not even with the sticky bit: below
// /tmp or /run/lock, name a directory of its own. Nobody but root can rename
// or replace it then, if the same holds for its parents, which are not looked
// at. A file in it that is not a lock is ErrConflict and stays as it is.
//
// # Guarantees
//
// All promises of package dlock hold between the processes of one user on one
// machine. A hold lives as long as its process: the kernel frees the lock the
// moment the holder dies, and at no time before. A holder that is stopped
// keeps it, whatever the TTL. A waiter that is stopped is passed over about
// half a TTL after its turn has come.
//
// A lock file may be deleted at any time. Whoever held the lock then learns
// at the next renewal, within a third of the TTL, that it is lost; tokens go
// on growing by the clock. The files keep the tokens and stay after Close.
//
// Network file systems are not supported: their locks are not those of one
// kernel, and nobody is told there when a file is closed. Only Linux is
// supported; elsewhere New fails with ErrUnsupported.
//
// # How it works
//
// A hold is a lock of flock(2) on the file of that name, so that flock(1)
// respects it and is respected. That lock has no queue, and the change from
// exclusive to shared is not promised to be atomic. Record locks on bytes of
// the same file fill the gap. They belong to an open file description like
// flock's, and end with it:
//
//	byte 0   held, as the lock itself is, by whoever holds the lock
//	byte 1   held for a moment by a reader on its way in
//	byte t   held by a waiter who came at t, in nanoseconds since 1970
//
// Who waits looks at the bytes before its own: readers mind writers only,
// writers mind everybody. Inotify tells it when somebody closes the file who
// had it open for writing, which the kernel also does for the dead.
package file

// Options are the settings of New. A nil *Options is the zero value.
type Options struct {
	// Dir is the directory. Empty means the user's own default.
	Dir string
}
