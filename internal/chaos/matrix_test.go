package chaos

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// columns are the backends of the matrix.
var columns = []string{"redis", "redlock", "etcd", "zk", "pg", "file", "memory"}

// A row is one fault of the matrix, with what shows that it is survived: for
// each backend tests by name, or why it does not apply. "nemesis" stands for
// this package, whose runs are counted. "*" is every backend that is not named.
type row struct {
	id, fault string
	cells     map[string]string
}

const (
	nemesis       = "nemesis"
	stoppedHolder = "internal/chaos:TestStoppedHolder"
	cut           = "internal/chaos:TestPartition"
)

// A cell that begins so gives a reason and no checkpoint.
const (
	none  = "n/a: "
	limit = "limit: " // followed by the reason, " | " and the test that shows it
)

var matrix = []row{
	{"F-01", "holder killed", map[string]string{"*": nemesis, "memory": none + "dies with its process"}},
	{"F-02", "holder stopped for less than its lease", map[string]string{"*": nemesis, "memory": none + "one process"}},
	{"F-03", "holder stopped past its lease", map[string]string{"*": nemesis + ", " + stoppedHolder, "memory": none + "one process"}},
	{"F-04", "exit without Unlock, panic", map[string]string{"*": nemesis + ", conformance:Do/UnlocksOnPanic", "memory": "conformance:Do/UnlocksOnPanic"}},
	{"F-05", "cancelled while waiting", map[string]string{"*": nemesis + ", conformance:Context/CancelWhileWaiting"}},
	{"F-06", "cancelled at the grant", map[string]string{"*": "conformance:Context/CancelAtGrant"}},
	{"F-07", "unlock races with renewal", map[string]string{"*": ".:TestNoRequestAfterUnlock, internal/renewal:TestRemoveWaitsForTheRenewalUnderWay, conformance:Keep/StopsAfterUnlock"}},
	{"F-08", "no processor for the renewal", map[string]string{"*": "conformance:Keep/BusyCPU"}},
	{"F-09", "very many locks of one client", map[string]string{"*": "conformance:Keep/TenThousand",
		"zk": "conformance:Keep/TenThousand, backend/zk:TestServerStartsAfterManyLocks"}},
	{"F-10", "server killed, restarted with its data", map[string]string{"*": nemesis + ", conformance:Crash/Restart", "file": none + "no server", "memory": none + "no server",
		"pg": limit + "sessions end with the server: the lock is free at once, and its holder told | conformance:Crash/Restart"}},
	{"F-11", "server killed, restarted empty", map[string]string{"redis": limit + "two may hold until the first learns of it; the token grows | conformance:Token/GrowsAcrossDataLoss",
		"redlock": nemesis,
		"zk":      limit + "tokens begin anew | backend/zk:TestServerLosesItsData",
		"etcd":    none + "takes a lost quorum", "pg": none + "takes a lost cluster", "file": none + "no server", "memory": none + "no server"}},
	{"F-12", "server stopped for less than a lease", map[string]string{"*": nemesis, "file": none + "no server"}},
	{"F-13", "server stopped past the lease", map[string]string{"*": nemesis, "file": none + "no server"}},
	{"F-14", "server shut down and restarted", map[string]string{"*": nemesis, "file": none + "no server", "memory": none + "no server"}},
	{"F-15", "server full", map[string]string{"redis": nemesis, "redlock": nemesis, "etcd": "backend/etcd:TestNoSpace", "pg": "backend/pg:TestLockTableFull, backend/pg:TestCap, backend/pg:TestUnlockFailsBeforeATry",
		"zk": none + "has no limit of its own; a full disk ends the server, see F-10", "file": none + "a full disk keeps nobody from locking", "memory": none + "no limit"}},
	{"F-16", "eviction", map[string]string{"redis": limit + "an evicted lock is lost, and known to be; the server should not evict | conformance:Loss/Evicted, backend/redis:TestReadersOutliveTheMainKey", "redlock": "conformance:Loss/Evicted", "*": none + "the server evicts nothing"}},
	{"F-17", "server busy, loading, read-only", map[string]string{"redis": nemesis, "redlock": nemesis, "pg": "backend/pg:TestStandbyRefused", "*": none + "the server has no such state"}},
	{"F-18", "login changed under a hold, rights taken away", map[string]string{"etcd": "backend/etcd:TestCredentialsRotate", "zk": "backend/zk:TestAccessDenied, backend/zk:TestUserSurvivesReconnect",
		"redis": "backend/redis:TestLoginChanges", "redlock": "conformance:Bad/Credentials", "pg": "backend/pg:TestLoginTakenAway", "file": "backend/file:TestUnsafeDirectories", "memory": none + "no login"}},
	{"F-19", "server full for longer than a lease", map[string]string{"redis": "backend/redis:TestFullServer, backend/redis:TestScriptsOnAFullServer", "*": none + "see F-15"}},
	{"F-20", "both ways dark past the lease", map[string]string{"*": nemesis + ", " + cut, "file": none + "no network",
		"pg": nemesis + ", " + cut + ", backend/pg:TestHostVanishes"}},
	{"F-21", "one way dark", map[string]string{"*": nemesis, "file": none + "no network", "memory": none + "no network"}},
	{"F-22", "reply to acquire lost", map[string]string{"*": nemesis + ", conformance:Lock/Resent", "file": none + "no network"}},
	{"F-23", "reply to unlock lost", map[string]string{"*": "conformance:Unlock/Resent", "file": none + "no network"}},
	{"F-24", "reply to renewal lost", map[string]string{"*": nemesis + ", conformance:Reentry/LostReply", "file": none + "no network", "pg": none + "the session is the lease"}},
	{"F-25", "notification lost", map[string]string{"redis": nemesis, "redlock": nemesis, "etcd": "backend/etcd:TestWaiterCutOff", "zk": "backend/zk:TestSessionExpiresWhileWaiting", "pg": "backend/pg:TestWaiterTerminated", "file": "backend/file:TestWithoutInotify", "memory": none + "notified in the process"}},
	{"F-26", "release between try and wait", map[string]string{"*": "conformance:Wait/ReleaseRacesPark"}},
	{"F-27", "connections reset", map[string]string{"*": nemesis, "file": none + "no network", "memory": none + "no network",
		"pg": limit + "with the connection goes the lock: the next may hold it 1 to 15 ms before the holder is told | backend/pg:TestConnectionReset"}},
	{"F-28", "slow, with jitter", map[string]string{"*": nemesis, "file": none + "no network", "memory": ".:TestAnswerThatIsTooLate"}},
	{"F-29", "refused, at open and later", map[string]string{"*": nemesis + ", conformance:Bad/Unreachable", "file": none + "no network"}},
	{"F-30", "session-sharing proxy", map[string]string{"pg": "backend/pg:TestTransactionPoolerRefused", "*": none + "Postgres only"}},
	{"F-31", "scripts flushed", map[string]string{"redis": nemesis, "redlock": nemesis, "*": none + "Redis only"}},
	{"F-32", "what keeps the lock deleted under its holder", map[string]string{"*": nemesis + ", conformance:Loss/Evicted", "pg": none + "nobody can take a session's lock from outside",
		"redis": nemesis + ", conformance:Loss/Evicted, backend/redis:TestReadersOutliveTheMainKey, backend/redis:TestRenewalOfWhatCannotBeRead"}},
	{"F-33", "lease revoked, session ended", map[string]string{"etcd": nemesis, "pg": nemesis + ", backend/pg:TestEndedIdleSessions, backend/pg:TestEndBehindATolerableFailure", "zk": "backend/zk:TestSessionExpiresWhileHolding", "*": none + "no session"}},
	{"F-34", "server's clock jumps ahead", map[string]string{"redis": limit + "who holds at that moment may be joined by another; the token grows | internal/chaos:TestChaos", "redlock": nemesis, "*": none + "leases do not follow the wall clock"}},
	{"F-35", "client's clock is set", map[string]string{"*": "internal/renewal:TestDeadlineByTheWallClock"}},
	{"F-36", "machine suspended", map[string]string{"*": "internal/renewal:TestDeadlineByTheWallClock", "file": none + "no lease"}},
	{"F-37", "taken away by an operator", map[string]string{"*": nemesis + ", conformance:Break/Races, conformance:Loss/Evicted, conformance:Loss/WaiterGoesOn",
		"pg": "conformance:Loss/Evicted, conformance:Loss/WaiterGoesOn", "file": "conformance:Loss/Evicted, conformance:Loss/WaiterGoesOn"}},
	{"F-38", "what a waiter queues with deleted by hand", map[string]string{"etcd": "backend/etcd:TestWaitersKeyDeleted, backend/etcd:TestKeyDeleted", "zk": "backend/zk:TestWaiterDeletedByHand, backend/zk:TestWaiterDeletedJustBefore", "*": none + "no waiter is let in because the entry of another is gone"}},
	{"F-40", "replica promoted that lacks the lock", map[string]string{"redis": limit + "two may hold until the old deadline; the token grows | backend/redis:TestSentinelFailoverUnderWork", "*": none + "Redis only"}},
	{"F-41", "Sentinel: master killed, or replaced while it is well", map[string]string{"redis": "backend/redis:TestPlannedSentinelFailover, backend/redis:TestSentinelFailoverUnderWork, backend/redis:TestSubscriptionsFollowTheMaster", "*": none + "Redis only"}},
	{"F-42", "Cluster: master killed, slots moved", map[string]string{"redis": "backend/redis:TestClusterFailoverUnderWork, backend/redis:TestSlotMovesUnderWork", "*": none + "Redis only"}},
	{"F-50", "Cluster: planned failover", map[string]string{"redis": "backend/redis:TestPlannedClusterFailover, backend/redis:TestNothingIsSentToWhoIsNotCountedInACluster", "*": none + "Redis only"}},
	{"F-51", "Cluster: replica takes over by force, master stopped", map[string]string{"redis": limit + "what the replica had not been told is lost; the token grows | backend/redis:TestUnplannedClusterFailover", "*": none + "Redis only"}},
	{"F-52", "planned failover behind an address that stays", map[string]string{"redis": "backend/redis:TestPlannedFailoverBehindAnAddress, backend/redis:TestSubscriptionFollowsTheWrites", "*": none + "Redis only"}},
	{"F-53", "subscription alive, but nothing comes through", map[string]string{"redis": "backend/redis:TestDeafSubscription, backend/redis:TestDeafSubscriptionIsAsked", "*": none + "see F-25"}},
	{"F-54", "forged, replayed, flooded messages", map[string]string{"redis": "backend/redis:TestHostilePeer, backend/redis:TestImplausibleGrant", "*": none + "clients are told nothing that strangers could send"}},
	{"F-43", "RedLock: nodes down, hung, slow, also under contention", map[string]string{"redlock": "backend/quorum:TestMinorityDown, backend/quorum:TestMajorityDown, backend/quorum:TestTwoDownOneSlow, backend/redis/internal/redlock:TestContendedWithNodesAway, backend/quorum:TestContendedWithNodesInTrouble, backend/quorum:TestFrontHangs, backend/quorum:TestFrontFlaps, backend/redis/internal/redlock:TestSilentNodeHoldsNothingUp", "*": none + "a lock on several servers"}},
	{"F-44", "RedLock: node comes back empty, or with old data", map[string]string{"redlock": "backend/quorum:TestRestartedNodeStaysOut, backend/redis/internal/redlock:TestRestartWithOldData, internal/protocol:TestQuorumAllRules", "*": none + "a lock on several servers"}},
	{"F-45", "leader killed, stopped, cut off", map[string]string{"etcd": "backend/etcd:TestLeaderGone, backend/etcd:TestMinority", "*": none + "etcd only; ZooKeeper is F-48"}},
	{"F-46", "client at a member that is cut off", map[string]string{"etcd": "backend/etcd:TestMinority", "zk": "backend/zk:TestEnsemble, backend/zk:TestNobodyAnswers", "*": none + "a cluster"}},
	{"F-47", "compaction while waiting, defragmentation", map[string]string{"etcd": nemesis + ", backend/etcd:TestCompaction", "*": none + "etcd only"}},
	{"F-48", "leader of the ensemble killed", map[string]string{"zk": "backend/zk:TestEnsemble", "*": none + "ZooKeeper only"}},
	{"F-49", "standby promoted", map[string]string{"pg": "backend/pg:TestStandbyRefused", "*": none + "Postgres only"}},
	{"F-60", "writer among readers who hold for long", map[string]string{"*": "conformance:RW/WriterNotStarved", "pg": "backend/pg:TestWriterBesideLongReaders, backend/pg:TestOrderAcrossSlices"}},
	{"F-61", "more waits than connections to wait on", map[string]string{"pg": "backend/pg:TestSlotsCountWaiters, backend/pg:TestMaxConns, backend/pg:TestMaxConnsAtOnce", "*": none + "a wait is no connection"}},
	{"F-62", "very many TTLs", map[string]string{"pg": "backend/pg:TestManyTTLs", "*": none + "a TTL is no connection"}},
	{"F-63", "dump restored, clock set back", map[string]string{"pg": "backend/pg:TestTokensGrowAcrossRestore, backend/pg:TestTokensGrowAcrossRestoreBeneathClients, backend/pg:TestSequenceRemoved, backend/pg:TestTokensGrowWhenTheClockDoesNot", "*": none + "Postgres only"}},
}

func (r row) cell(backend string) string {
	if c, ok := r.cells[backend]; ok {
		return c
	}
	return r.cells["*"]
}

// Each fault of the matrix has a cell for each backend, and each cell that names
// a test names one that there is.
func TestMatrix(t *testing.T) {
	known := make(map[string]string)
	for _, r := range matrix {
		for _, backend := range columns {
			cell := r.cell(backend)
			switch reason, test, _ := strings.Cut(cell, " | "); {
			case cell == "":
				t.Errorf("%s %s: nothing", r.id, backend)
			case strings.HasPrefix(cell, none):
			case strings.HasPrefix(cell, limit):
				checkpoints(t, known, r.id, backend, test)
				if len(reason) <= len(limit) {
					t.Errorf("%s %s: a limit without a reason", r.id, backend)
				}
			default:
				checkpoints(t, known, r.id, backend, cell)
			}
		}
	}
}

func checkpoints(t *testing.T, known map[string]string, id, backend, cell string) {
	for _, checkpoint := range strings.Split(cell, ", ") {
		dir, name, _ := strings.Cut(checkpoint, ":")
		if checkpoint == nemesis {
			if !slices.Contains(faultsOf(t, backend), id) && id != "F-05" && id != "F-24" { // cancels of its own, renewals among what is lost
				t.Errorf("%s %s: the nemesis does not do it", id, backend)
			}
			continue
		}
		if known[dir] == "" {
			known[dir] = source(t, dir)
		}
		pattern := `func ` + name + `\(`
		if dir == "conformance" {
			pattern = `"` + name + `"`
		}
		if !regexp.MustCompile(pattern).MatchString(known[dir]) {
			t.Errorf("%s %s: there is no %s", id, backend, checkpoint)
		}
	}
}

// noServer is never asked for anything.
type noServer struct{ Server }

// source is all that is written in a package.
func source(t *testing.T, dir string) string {
	files, err := filepath.Glob(filepath.Join("..", "..", dir, "*.go"))
	must(t, err)
	var all strings.Builder
	for _, f := range files {
		text, err := os.ReadFile(f)
		must(t, err)
		all.Write(text)
	}
	return all.String()
}

// faultsOf reads from the sources what the nemesis can do to a backend, which
// is quicker than to start it.
func faultsOf(t *testing.T, backend string) []string {
	text, err := os.ReadFile("subject_test.go")
	must(t, err)
	_, body, ok := strings.Cut(string(text), "func "+backend+"Subject(")
	if !ok {
		t.Fatalf("no subject %s", backend)
	}
	body, _, _ = strings.Cut(body, "\n}\n")
	ids := make(map[string]bool)
	for _, m := range regexp.MustCompile(`ID: "(F-\d+)"`).FindAllStringSubmatch(body, -1) {
		ids[m[1]] = true
	}
	for call, faults := range map[string][]Fault{
		"ProcessFaults(": ProcessFaults(), "NetworkFaults(": NetworkFaults(1), "ServerFaults(": ServerFaults(noServer{}, false),
	} {
		if strings.Contains(body, call) {
			for _, f := range faults {
				ids[f.ID] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(ids))
}

// write puts the matrix, with what was seen, into a file.
func (f *findings) write(path string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var b strings.Builder
	b.WriteString(preface)
	f.totals(&b)
	f.matrix(&b)
	f.recoveries(&b)
	f.checkpoints(&b)
	return os.WriteFile(path, []byte(b.String()), 0o644)
}

const preface = `# What happens when things break

<!-- Written by make chaos. Do not edit. -->

Worker processes take and give back locks while a nemesis breaks what it can;
then their histories are checked for two holders of one lock, tokens out of
order, late writes that a fenced store took, errors that are not true, and calls
that never end, and each short history is compared with four models of a lock.
`

func (f *findings) totals(b *strings.Builder) {
	slices.SortFunc(f.results, func(x, y *Result) int { return slices.Index(columns, x.Backend) - slices.Index(columns, y.Backend) })
	b.WriteString(`
## Totals

| backend | operations | faults | violations | histories searched | partitions in which the holder knew first | stopped holders whose late write was refused |
|---|---|---|---|---|---|---|
`)
	operations, faults, violations := 0, 0, 0
	for _, r := range f.results {
		operations, faults, violations = operations+r.Operations, faults+len(r.Faults), violations+len(r.Violations)
		fmt.Fprintf(b, "| %s %s | %d | %d | %d | %d | %s | %s |\n", r.Backend, r.Version, r.Operations, len(r.Faults), len(r.Violations), r.Searched,
			f.inTime(r.Backend), f.refused(r.Backend))
	}
	fmt.Fprintf(b, "| all | %d | %d | %d | | | |\n", operations, faults, violations)
}

func (f *findings) inTime(backend string) string {
	p, ok := f.parts[backend]
	if !ok {
		return "cannot be cut off"
	}
	return fmt.Sprintf("%d of %d, by %v at least", p.inTime, p.rounds, p.least.Round(time.Millisecond))
}

func (f *findings) refused(backend string) string {
	n, ok := f.stops[backend]
	switch {
	case !ok:
		return "one process"
	case backend == "file":
		return fmt.Sprintf("%d of %d kept the lock", n, n)
	}
	return fmt.Sprintf("%d of %d", n, n)
}

func (f *findings) matrix(b *strings.Builder) {
	b.WriteString(`
## The matrix

- ✓: nobody held the lock beside somebody else, and everybody got on.
- fenced: the holder did not run, or the server let go of its hold, so that two
  may have believed in the lock until the first learned of it. The fenced store
  took no late write, tokens grew, and everybody got on.
- limit: cannot hold by nature; a test shows what happens instead.
- –: does not apply.

Numbers are what the nemesis did in this run. Below is the checkpoint of each cell.

`)
	fmt.Fprintf(b, "| | fault | %s |\n|---|---|%s\n", strings.Join(columns, " | "), strings.Repeat("---|", len(columns)))
	for _, r := range matrix {
		fmt.Fprintf(b, "| %s | %s |", r.id, r.fault)
		for _, backend := range columns {
			fmt.Fprintf(b, " %s |", f.mark(r, backend))
		}
		b.WriteString("\n")
	}
}

func (f *findings) mark(r row, backend string) string {
	cell, seen := r.cell(backend), f.of(backend, r.id)
	mark := "✓"
	switch {
	case strings.HasPrefix(cell, none):
		return "–"
	case strings.HasPrefix(cell, limit):
		mark = "limit"
	case slices.ContainsFunc(seen, func(i Injected) bool { return i.Forgets || i.Fault == "F-03" && backend != "file" }):
		mark = "fenced"
	case cell == nemesis && len(seen) == 0:
		return "not run"
	}
	if n := len(seen); n > 0 {
		return fmt.Sprintf("%s %d×", mark, n)
	}
	return mark
}

// of returns what the nemesis did to a backend, the quickest recovery first.
func (f *findings) of(backend, id string) (seen []Injected) {
	for _, r := range f.results {
		for _, i := range r.Faults {
			if r.Backend == backend && i.Fault == id {
				seen = append(seen, i)
			}
		}
	}
	slices.SortFunc(seen, func(a, b Injected) int { return cmp.Compare(a.Recovery, b.Recovery) })
	return seen
}

func (f *findings) recoveries(b *strings.Builder) {
	b.WriteString(`
## Recovery

From the moment a fault was healed until every goroutine of every worker had
held, anew, a lock that all of them want: median and longest, in milliseconds.
They queue for two locks, so some of this is waiting for one another.

`)
	fmt.Fprintf(b, "| | %s |\n|---|%s\n", strings.Join(columns, " | "), strings.Repeat("---|", len(columns)))
	for _, r := range matrix {
		line, any := "| "+r.id+" |", false
		for _, backend := range columns {
			seen := f.of(backend, r.id)
			if len(seen) == 0 {
				line += " |"
				continue
			}
			any = true
			line += fmt.Sprintf(" %d, %d |", seen[len(seen)/2].Recovery.Milliseconds(), seen[len(seen)-1].Recovery.Milliseconds())
		}
		if any {
			b.WriteString(line + "\n")
		}
	}
}

func (f *findings) checkpoints(b *strings.Builder) {
	b.WriteString(`
## The checkpoint of each cell

"nemesis" is TestChaos of internal/chaos, with the faults counted above;
conformance:X is the property X of the suite that every backend passes; the rest
are tests by package and name.

`)
	for _, r := range matrix {
		fmt.Fprintf(b, "**%s %s**\n\n", r.id, r.fault)
		for _, group := range r.groups() {
			fmt.Fprintf(b, "- %s\n", group)
		}
		b.WriteString("\n")
	}
}

// groups says of the backends what is said of them, those together of which it
// is the same.
func (r row) groups() (lines []string) {
	var cells []string
	who := make(map[string][]string)
	for _, backend := range columns {
		cell := r.cell(backend)
		if who[cell] == nil {
			cells = append(cells, cell)
		}
		who[cell] = append(who[cell], backend)
	}
	for _, cell := range cells {
		cell, test, _ := strings.Cut(cell, " | ")
		text := strings.Replace(cell, none, "does not apply: ", 1)
		if test != "" {
			text += " (" + test + ")"
			cell += " | " + test
		}
		lines = append(lines, strings.Join(who[cell], ", ")+": "+text)
	}
	return lines
}
