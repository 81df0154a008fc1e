// Package file keeps locks in the files of one directory, for the processes of
// one machine. It needs no server.
//
// # URL
//
// file:///var/lock/app names the directory; it is created with mode 0700 if it
// is missing, and so is what leads there. file:// alone is .local/state/dlock in the
// home directory of the effective user, as the user database says, not the environment: a login, cron, sudo
// and a service differ in that (XDG_STATE_HOME, XDG_RUNTIME_DIR, which only a login has,
// and HOME), and their locks would exclude nobody. A user without a home has
// /tmp/dlock-<uid>. A home that is missing or out of reach, as with systemd's
// ProtectHome, is an error, and no other directory takes its place. There are no
// parameters.
//
// Processes exclude each other if they have the same directory before them. Those in
// containers, or in services with PrivateTmp, see a /tmp of their own, and perhaps a
// home of their own: give them a directory that they share, by name.
//
// The directory must be a real one, not a symbolic link, belong to the user,
// and not be writable for anybody else, not even with the sticky bit: below
// /tmp or /run/lock, name a directory of its own. Nobody but root can rename
// or replace it then, if the same holds for its parents, which are not looked
// at. It is held open, and looked at anew when another has taken its place: locks in
// the old one are lost. A file in it that is not a lock is ErrConflict and stays as it
// is; one that a crash of the machine has filled with zeros, or cut short, heals.
//
// Who can do what to a lock, on files and elsewhere, is told in docs/security.md.
//
// While a client is open the directory has a shared lock of flock(2), at which
// systemd-tmpfiles leaves it alone. Other cleaners may not.
//
// # Guarantees
//
// All promises of package dlock hold between the processes of one user on one
// machine. A hold lives as long as its process: the kernel frees the lock the
// moment the holder dies, and at no time before. A holder that is stopped
// keeps it, whatever the TTL. A waiter that is stopped is passed over about
// half a TTL after its turn has come. A reader that is stopped as it joins others, which takes
// microseconds, keeps further readers from joining until it goes on: RLock waits, and TryRLock
// is ErrUnavailable.
//
// A lock file may be deleted at any time. Whoever held the lock then learns
// at the next renewal, within a third of the TTL, that it is lost; tokens go
// on growing by the clock. The files keep the tokens and stay after Close.
//
// Network file systems are refused, by what statfs(2) says: NFS, SMB, 9p, FUSE and
// others. Their locks are not those of one kernel, and nobody is told there when a file
// is closed.
//
// # Systems
//
// The promises are the same on Linux, macOS, FreeBSD and Windows; elsewhere New fails with
// ErrUnsupported. On Linux the kernel wakes who waits. On the other systems a waiter looks
// again every 4 to 20 ms, and a hold takes two open files. On Windows the default
// directory is below the user's profile, whoever may write there is not checked, and the
// URL of C:\locks is file:///C:/locks.
//
// # Who holds a lock
//
// Who holds the lock or waits for it is known with label, process and client, and since
// when. A lock file says in its second line who has got the lock last; those who wait, and
// readers that join others, stand in a file of their client's in the directory labels,
// which goes with the client. A holder hears at its next renewal that somebody waits.
// Nobody can take a lock from a process that is alive: Break is ErrUnsupported,
// and says which process it is.
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
//	byte 1   held for a moment by a reader that joins
//	byte t   held by a waiter who came at t, in nanoseconds since 1970
//
// The file says which tokens have been given out, or may be by its holder, who
// reserves 10,000 of them, 10 ms by the clock, to pass the lock on within its process
// without a word to the file, and gives back the rest.
//
// Who waits looks at the bytes before its own: readers mind writers only,
// writers mind everybody. Inotify tells it when somebody closes the file who
// had it open for writing, which the kernel also does for the dead.
//
// Other systems have no record locks that belong to an open file. There a ticket stands
// for the lock of a byte: a file of its own in a directory beside the lock file, locked as
// a whole by its owner, and removed by whoever finds that the owner is gone. The two ways
// do not see each other's queue. The build tag dlock_portable has Linux go the second way,
// for tests: no process of the same directory may go the first one then.
package file
