package pg

import (
	"errors"

	"github.com/dlock-go/dlock/backend"
	"github.com/jackc/pgx/v5/pgconn"
)

// ErrLockTable says that the server's lock table has no room for another lock,
// or that this client has as many as it may: see Options.MaxLocks. More room
// is made by max_locks_per_transaction and a restart of the server. The
// table is shared with everything else that the server does.
var ErrLockTable = errors.New("dlock: too many locks on the server")

// SQLSTATE codes that mean something here.
const (
	outOfMemory      = "53200" // also: the lock table is full
	lockNotAvailable = "55P03" // lock_timeout
	queryCanceled    = "57014"
	deadlockDetected = "40P01"
	undefinedTable   = "42P01" // also: no such sequence
)

// kinds maps SQLSTATE codes to the kind of failure they are.
var kinds = map[string]error{
	"28000": backend.ErrAuth,          // no such role, or not from here
	"28P01": backend.ErrAuth,          // wrong password
	"42501": backend.ErrAuth,          // not permitted
	"3D000": backend.ErrInvalidConfig, // no such database
	"3F000": backend.ErrInvalidConfig, // no such schema
	"42704": backend.ErrInvalidConfig, // no such parameter
}

// classify gives an error of the driver its kind.
func classify(err error) error {
	forget(err)
	if backend.HasKind(err) {
		return err
	}
	code := codeOf(err)
	if kind := kinds[code]; kind != nil {
		return backend.Fail(kind, err)
	}
	if code == outOfMemory {
		err = backend.Fail(ErrLockTable, err)
	}
	return backend.Fail(backend.ErrUnavailable, err)
}

// forget has an error of the driver carry no password, which whatever prints errors by
// reflection would find in it.
func forget(err error) {
	var e *pgconn.ConnectError
	if errors.As(err, &e) && e.Config != nil && e.Config.Password != "" {
		redacted := *e.Config
		redacted.Password = ""
		e.Config = &redacted
	}
}

// codeOf returns the SQLSTATE of err, empty if the server did not say it.
func codeOf(err error) string {
	var e *pgconn.PgError
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// isServers reports whether the server has said err.
func isServers(err error) bool {
	var e *pgconn.PgError
	return errors.As(err, &e)
}

// isFatal reports whether err is the server's last word on a connection.
func isFatal(err error) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && (e.SeverityUnlocalized == "FATAL" || e.SeverityUnlocalized == "PANIC")
}

// passing reports whether a request that waits may try again after err.
func passing(err error) bool {
	return errors.Is(err, backend.ErrUnavailable) && !errors.Is(err, ErrLockTable)
}
