package conformance

import (
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

// A Harness is how the suite reaches one backend. Fields are required unless
// they say otherwise.
type Harness struct {
	// Name and Version stand in the closing line: redis, 7.0.15.
	Name, Version string

	// Open returns a client with its own connection and identity, as a second
	// process would have. The suite closes it.
	Open func(t testing.TB, o dlock.Options) *Peer

	// URL is what another process opens to see the same locks. It is empty
	// for a backend that lives in one process: the suite then checks that its
	// locks mean nothing to another.
	URL string

	// Hosts is a list of hosts as a URL of this backend may have it. Empty
	// means one host.
	Hosts string

	// TTL is the shortest lease at which the server and this machine are
	// reliable. The suite waits for multiples of it.
	TTL time.Duration

	// BelowMinTTL is a TTL that the backend refuses. Zero means one below
	// backend.MinTTL.
	BelowMinTTL time.Duration

	// Leased says that the server ends the hold of a client that it hears
	// nothing of. Without it a hold lasts as long as its process or
	// connection, and the suite checks that instead.
	Leased bool

	// Evict makes the server forget whoever holds name, behind the holder's
	// back: it deletes the key, revokes the lease, ends the session.
	Evict func(t testing.TB, name string)

	// Ops returns how many requests clients have sent to the server so far.
	// It is nil where there is no server.
	Ops func() int64

	// Waiting returns how many requests for name the server knows of that
	// wait. The suite waits for a request to be queued with it.
	Waiting func(t testing.TB, name string) int

	// Residue lists what the server still has of this library's: keys,
	// nodes, channels, sessions. What a lock may leave behind for a while,
	// such as the small key that keeps its token, is not listed.
	Residue func(t testing.TB) []string

	// Foreign puts something that is not a lock of this library where the
	// lock of that name would be, and returns a check that it is untouched.
	// It is nil where nothing else can stand there.
	Foreign func(t testing.TB, name string) (untouched func() error)

	// Restart stops the server at once and starts it with the data it had.
	// It returns when the server answers. It is nil where there is no server.
	Restart func(t testing.TB)

	// Wipe makes the server lose all locks and tokens. It is nil for a
	// backend that does not promise to keep the order of tokens then.
	Wipe func(t testing.TB)

	// BadLogin is a URL of the running server with wrong credentials. It is
	// empty where there are none.
	BadLogin string

	// Nowhere is a URL of this backend at which no server answers. It is
	// empty where there is no server.
	Nowhere string

	// Scheme is the backend's URL scheme.
	Scheme string

	// Optional lists the optional interfaces of package backend that the
	// backend implements, in alphabetical order: Downgrader, MinTTLer,
	// Reenterer, Renewer, TokenRegister, Transferer. One that disappears is a failure, not
	// a silence.
	Optional []string

	// Borrow returns a backend on a client that stays the caller's, and a
	// check that the client still works. It is nil where there is nothing to
	// borrow.
	Borrow func(t testing.TB) (b backend.Backend, works func() error)

	// Lacks names each feature that the backend does not have, and why. A
	// property that needs it is skipped with the reason, and the suite checks
	// that using the feature fails with dlock.ErrUnsupported.
	Lacks map[Feature]string
}

// A Feature is something that a backend may lack.
type Feature string

// The features there are.
const (
	Readers   Feature = "readers"   // shared holds
	Downgrade Feature = "downgrade" // from exclusive to shared
)

// A Peer is one client of the backend under test, with what can be done to it.
type Peer struct {
	*dlock.Client

	// Backend is what stands behind the client.
	Backend backend.Backend

	// Cut stops the client from reaching the server, without any error, until
	// heal is called. It is nil where there is no server.
	Cut func() (heal func())

	// DropReply makes the server's reply to the client's next request get
	// lost: the request takes effect, the client does not learn of it. It is
	// nil where there is no server.
	DropReply func()

	// Closed is called when the client has been closed. It may be nil.
	Closed func()
}

func (h *Harness) check(t testing.TB) {
	t.Helper()
	missing := map[string]bool{
		"Name": h.Name == "", "Version": h.Version == "", "Open": h.Open == nil, "TTL": h.TTL == 0,
		"Evict": h.Evict == nil, "Residue": h.Residue == nil, "Waiting": h.Waiting == nil, "Scheme": h.Scheme == "",
	}
	for field, is := range missing {
		if is {
			t.Fatalf("conformance: Harness.%s is not set", field)
		}
	}
}
