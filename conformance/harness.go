package conformance

import (
	"os"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

// A Harness is how the suite reaches one backend. Fields are required unless
// they say otherwise. A property that needs an optional field that is not set is
// reported as not applicable, never as passed.
//
// Wherever a function takes the name of a lock, it is the name that the backend
// sees, prefix included.
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

	// TTL is the lease of most locks of the suite, which waits for multiples of
	// it. Choose the shortest that the server and a busy machine keep: at least
	// ten units of what the server counts in, such as its ticks or whole seconds,
	// at least a hundred round trips, and no less than the longest time for which
	// the machine may give the tests no processor. Zero means [TTL], which the
	// environment may set.
	TTL time.Duration

	// BelowMinTTL is a TTL that the backend refuses. Zero means one below
	// backend.MinTTL.
	BelowMinTTL time.Duration

	// Leased says that the server ends the hold of a client that it hears
	// nothing of. Without it a hold lasts as long as its process or
	// connection, and the suite checks that instead.
	Leased bool

	// Evict makes the server forget whoever holds name, behind the holder's
	// back. It removes what stands for this hold and nothing else, such as the
	// lock's own key: not the lease or session behind it, and not those who wait.
	// Where there is no such thing it ends the holder's session.
	Evict func(t testing.TB, name string)

	// Ops returns how many requests clients have sent to the server so far.
	// Messages without an answer count; what the server sends unasked, and the
	// driver's own signs of life, do not. It is nil where there is no server.
	Ops func() int64

	// Heard writes down the requests that the server gets from now on, until stop, for
	// whoever has to find out which of them should not have been sent. It may be nil.
	Heard func(t testing.TB) (stop func() []string)

	// Conns returns how many connections clients have open to the server. It is
	// nil where there are none, or where they cannot be counted.
	Conns func() int

	// Waiting returns how many requests for name the server knows of that
	// wait. The suite waits for a request to be queued with it.
	Waiting func(t testing.TB, name string) int

	// OrderByClients says that the order of those who wait is kept by clients that
	// answer in time, and not by a server: while this process gets no processor, one
	// may overtake another.
	OrderByClients bool

	// MostHolds is how many locks a process is to hold at once, if that is less than
	// 10,000: it can hold no more, or another harness of the same backend does. 0 means
	// that it is not less.
	MostHolds int

	// Polls says that who waits asks the server by itself from time to time, since
	// nothing tells it. How many requests waiters cost is then not counted.
	Polls bool

	// NoLabels says that the server knows the label of a client, as far as it is plain
	// text, and not that of a single lock.
	NoLabels bool

	// ManyServers says that Inspect asks several servers, each at a moment of its own: one
	// may tell of a holder who waits again, or whom another follows, when the next is asked.
	ManyServers bool

	// Residue lists what the server still has of this library's: keys,
	// nodes, channels, sessions. What a lock may leave behind for a while,
	// such as the small key that keeps its token, is not listed.
	Residue func(t testing.TB) []string

	// State returns a text that differs after every write to the server, such as the
	// number of its writes, or all that it has. What the server does by itself may
	// change it now and then. Nil says that there is no such text.
	State func(t testing.TB) string

	// Foreign puts something that is not a lock of this library where the
	// lock of that name would be, and returns a check that it is untouched.
	// It is nil where nothing else can stand there.
	Foreign func(t testing.TB, name string) (untouched func() error)

	// Restart stops the server at once and starts it with the data it had.
	// It returns when the server answers. It is nil where there is no server.
	Restart func(t testing.TB)

	// Durable says that holds outlive Restart. Without it they may be lost then,
	// as those of a server that ends them with their connection.
	Durable bool

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
	// backend implements, in alphabetical order: BatchReleaser, Breaker, Downgrader,
	// Expirer, Inspector, MinTTLer, Pinger, Reenterer, Renewer, TokenRegister,
	// Transferer. One that disappears is a failure, not a silence.
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

	// Cut stops the client from reaching the server, and the server from
	// reaching the client, without any error, until heal is called. What is sent
	// meanwhile may be delivered late, complete and in order, as by TCP after a
	// partition, or never. It is nil where there is no server.
	Cut func() (heal func())

	// Delay holds back what the server sends to this client, replies and
	// messages alike, each for d. What the client sends goes through at once. Zero
	// ends it, and lets through what is held back. It is nil where there is no
	// server.
	Delay func(d time.Duration)

	// DropReply makes the server's reply to the client's next request get
	// lost: the request takes effect, the client does not learn of it, and its
	// connection may break. The next request is one that asks for a lock or ends
	// one where the harness can tell, and otherwise whatever is sent next. It is
	// nil where there is no server.
	DropReply func()

	// Closed is called when the client has been closed. It may be nil.
	Closed func()
}

func (h *Harness) check(t testing.TB) {
	t.Helper()
	if h.TTL == 0 {
		h.TTL = TTL()
	}
	missing := map[string]bool{
		"Name": h.Name == "", "Version": h.Version == "", "Open": h.Open == nil,
		"Evict": h.Evict == nil, "Residue": h.Residue == nil, "Waiting": h.Waiting == nil, "Scheme": h.Scheme == "",
	}
	for field, is := range missing {
		if is {
			t.Fatalf("conformance: Harness.%s is not set", field)
		}
	}
}

// envTTL sets the TTL of harnesses that leave it to the suite.
const envTTL = "DLOCK_CONFORMANCE_TTL"

// TTL is the lease of a [Harness] that sets none: that of the environment variable
// DLOCK_CONFORMANCE_TTL, a duration such as 2s, or else 4 s. That is as short as a
// machine allows that is busy with the tests and at times gets no processor for
// seconds; where nothing else runs 1 s is enough, and a run takes a third of the
// time.
func TTL() time.Duration {
	if d, err := time.ParseDuration(os.Getenv(envTTL)); err == nil && d > 0 {
		return d
	}
	return 4 * time.Second
}
