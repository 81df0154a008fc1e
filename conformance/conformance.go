// Package conformance states what a lock is, property by property, and tests
// that a backend has every one of them.
//
// Each property is a subtest whose name says what must hold. The suite reaches
// the backend through the API of package dlock alone, and through a [Harness]
// for what users cannot do: cut a client off, take a lock away, count what is
// sent. A test of a backend is one literal and one call:
//
//	func TestMain(m *testing.M) { os.Exit(conformance.Main(m)) }
//
//	func TestConformance(t *testing.T) { conformance.Run(t, harness(t)) }
package conformance

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"
)

// A property is one thing that is true of every lock.
type property struct {
	name string
	test func(*scenario)

	// quiet properties count requests or goroutines, or disturb the server:
	// nothing else runs beside them.
	quiet bool
}

const quiet = true

// limits are those of properties that do so much that a slow machine needs more
// than the common limit.
var limits = map[string]time.Duration{
	"Keep/TenThousand": 4 * limit,
	"Wait/ManyLocks":   2 * limit,
}

var properties = []property{
	{"Exclusion/Goroutines", exclusionGoroutines, false},
	{"Exclusion/Lockers", exclusionLockers, false},
	{"Exclusion/Clients", exclusionClients, false},
	{"Exclusion/Processes", exclusionProcesses, false},
	{"Exclusion/MutexAndRWMutex", exclusionMutexAndRWMutex, false},
	{"Exclusion/NamesIndependent", exclusionNamesIndependent, false},
	{"Exclusion/PrefixesIndependent", exclusionPrefixesIndependent, false},

	{"TryLock/Free", tryLockFree, false},
	{"TryLock/BusyReturnsAtOnce", tryLockBusyReturnsAtOnce, quiet},
	{"TryLock/OneWinner", tryLockOneWinner, false},
	{"TryLock/LeavesNothing", tryLockLeavesNothing, false},
	{"TryLock/DoesNotOvertake", tryLockDoesNotOvertake, false},

	{"Wait/Granted", waitGranted, false},
	{"Wait/FIFOClients", waitFIFOClients, false},
	{"Wait/FIFOGoroutines", waitFIFOGoroutines, false},
	{"Wait/NoPolling", waitNoPolling, quiet},
	{"Wait/NoHerd", waitNoHerd, quiet},
	{"Wait/ReleaseRacesPark", waitReleaseRacesPark, false},
	{"Wait/MiddleWaiterDies", waitMiddleWaiterDies, false},
	{"Wait/QueuedProcessKilled", waitQueuedProcessKilled, false},
	{"Wait/QueuedProcessStopped", waitQueuedProcessStopped, false},
	{"Wait/OtherLocksGoOn", waitOtherLocksGoOn, false},
	{"Wait/Wanted", wantedIsTold, false},
	{"Wait/LateGrant", waitLateGrant, false},

	{"HandOver/Tokens", handOverTokens, false},
	{"HandOver/LetsOthersIn", handOverLetsOthersIn, false},
	{"HandOver/LetsAWriterIn", handOverReaders, false},
	{"HandOver/AsksNobody", handOverAsksNobody, quiet},
	{"HandOver/Loss", handOverLoss, false},

	{"Context/DoneBefore", contextDoneBefore, quiet},
	{"Context/CancelWhileWaiting", contextCancelWhileWaiting, false},
	{"Context/CancelAtGrant", contextCancelAtGrant, false},
	{"Context/CancelWhileUnanswered", contextWhileUnanswered, false},
	{"Context/BehindUnanswered", contextBehindUnanswered, false},
	{"Context/DoesNotBoundHold", contextDoesNotBoundHold, false},
	{"Context/Deadline", contextDeadline, false},
	{"Context/MaxWait", contextMaxWait, false},
	{"Context/DeadlineOfAnother", contextDeadlineOfAnother, false},
	{"Context/NextWaiterUnaffected", contextNextWaiterUnaffected, false},
	{"Context/CancelledWaiterIsGone", contextCancelledWaiterIsGone, false},
	{"Context/CancelledGrantIsGone", contextCancelledGrantIsGone, false},

	{"Unlock/DeadContext", unlockDeadContext, false},
	{"Unlock/Twice", unlockTwice, false},
	{"Unlock/AfterLoss", unlockAfterLoss, false},
	{"Unlock/Resent", unlockResent, false},
	{"Unlock/OtherGoroutine", unlockOtherGoroutine, false},
	{"Unlock/Concurrently", unlockConcurrently, false},
	{"Unlock/NilLease", unlockNilLease, false},
	{"Unlock/AfterClose", unlockAfterClose, false},
	{"Unlock/ReleasedAgain", unlockReleasedAgain, false},
	{"Unlock/SaysLost", unlockSaysLost, false},
	{"Lock/Resent", lockResent, false},

	{"Sent/Acquire", sentAcquire, false},
	{"Sent/Renewal", sentRenewal, false},
	{"Sent/Grant", sentGrant, false},

	{"Reentry/Counts", reentryCounts, false},
	{"Reentry/Order", reentryOrder, false},
	{"Reentry/TryLock", reentryTryLock, false},
	{"Reentry/SameToken", reentrySameToken, false},
	{"Reentry/NotBySibling", reentryNotBySibling, false},
	{"Reentry/NotAcrossNames", reentryNotAcrossNames, false},
	{"Reentry/NotAcrossClients", reentryNotAcrossClients, false},
	{"Reentry/SiblingsExclude", reentrySiblingsExclude, false},
	{"Reentry/SiblingReadersShare", reentrySiblingReadersShare, false},
	{"Reentry/Held", reentryHeld, false},
	{"Reentry/InnerKeepsWatchdog", reentryInnerKeepsWatchdog, false},
	{"Reentry/NeverShortens", reentryNeverShortens, false},
	{"Reentry/AfterEarlyUnlock", reentryAfterEarlyUnlock, false},
	{"Reentry/AfterUnlock", reentryAfterUnlock, false},
	{"Reentry/AfterLoss", reentryAfterLoss, false},
	{"Reentry/Forbidden", reentryForbidden, false},
	{"Reentry/LostReply", reentryLostReply, false},
	{"Reentry/ReadUnderWrite", reentryReadUnderWrite, false},
	{"Reentry/ReadUnderRead", reentryReadUnderRead, false},

	{"Keep/OutlivesTTL", keepOutlivesTTL, false},
	{"Keep/StopsAfterUnlock", keepStopsAfterUnlock, quiet},
	{"Keep/MaxHold", keepMaxHold, false},
	{"Keep/MaxHoldRenewsNothing", keepMaxHoldRenewsNothing, quiet},
	{"Keep/MinHold", keepMinHold, false},
	{"Keep/MinHoldAtClose", keepMinHoldAtClose, false},
	{"Keep/SurvivesBlip", keepSurvivesBlip, false},
	{"Keep/TellsOfTheLease", keepTellsOfTheLease, false},
	{"Keep/BusyCPU", keepBusyCPU, quiet},
	{"Keep/CancelledParent", keepCancelledParent, false},
	{"Keep/WholeLease", keepWholeLease, false},
	{"Keep/ManyTTLs", keepManyTTLs, quiet},

	{"Loss/Evicted", lossEvicted, false},
	{"Loss/Unobserved", lossUnobserved, false},
	{"Loss/Cut", lossCut, false},
	{"Loss/Many", lossOfMany, false},
	{"Loss/BeforeNextHolder", lossBeforeNextHolder, quiet},
	{"Loss/AllLocksOfClient", lossAllLocksOfClient, false},
	{"Loss/NotOnUnlock", lossNotOnUnlock, false},
	{"Loss/AlreadyLost", lossAlreadyLost, false},
	{"Loss/WhileWaiting", lossWhileWaiting, false},
	{"Loss/WhileWaitingReader", lossWhileWaitingReader, false},
	{"Loss/WaiterGoesOn", lossWaiterGoesOn, false},
	{"Loss/OtherClientsUnaffected", lossOtherClientsUnaffected, false},
	{"Loss/NextLockWorks", lossNextLockWorks, false},
	{"Loss/StoppedHolder", lossStoppedHolder, false},
	{"Loss/KeyGone", lossKeyGone, false},

	{"Crash/HolderKilled", crashHolderKilled, false},
	{"Crash/HolderExits", crashHolderExits, false},
	{"Crash/ReaderKilled", crashReaderKilled, false},
	{"Crash/MinHold", crashMinHold, false},
	{"Crash/Restart", crashRestart, quiet},

	{"Token/Grows", tokenGrows, false},
	{"Token/GrowsInARow", tokenGrowsInARow, false},
	{"Token/GrowsAcrossExpiry", tokenGrowsAcrossExpiry, false},
	{"Token/GrowsAcrossProcesses", tokenGrowsAcrossProcesses, false},
	{"Token/GrowsAcrossRestart", tokenGrowsAcrossRestart, quiet},
	{"Token/GrowsAcrossDataLoss", tokenGrowsAcrossDataLoss, quiet},
	{"Token/ReadersAgainstLastWriter", tokenReadersAgainstLastWriter, false},
	{"Token/ReadersAfterDowngrade", tokenReadersAfterDowngrade, false},

	{"RW/ReadersShare", rwReadersShare, false},
	{"RW/ReadersAlone", rwReadersAlone, false},
	{"RW/WriterAlone", rwWriterAlone, false},
	{"RW/WriterWaitsForAll", rwWriterWaitsForAll, false},
	{"RW/ReadersAreTold", rwReadersAreTold, false},
	{"RW/WriterNotStarved", rwWriterNotStarved, false},
	{"RW/WriterAmongLongReaders", rwWriterAmongLongReaders, false},
	{"RW/ReaderNotStarved", rwReaderNotStarved, false},
	{"RW/ReadersGrantedTogether", rwReadersGrantedTogether, false},
	{"RW/TryRLockBehindWaitingWriter", rwTryRLockBehindWaitingWriter, false},
	{"RW/WRW", rwWRW, false},
	{"RW/UpgradeRefused", rwUpgradeRefused, quiet},
	{"RW/Downgrade", rwDowngrade, false},
	{"RW/DowngradeNeverAsked", rwDowngradeNeverAsked, false},
	{"RW/DowngradeAgainstQueuedWriter", rwDowngradeAgainstQueuedWriter, false},
	{"RW/DowngradeLocally", rwDowngradeLocally, false},
	{"RW/DowngradeUnderEntries", rwDowngradeUnderEntries, false},
	{"RW/UnlockDuringDowngrade", rwUnlockDuringDowngrade, false},
	{"RW/LeaseMatrix", rwLeaseMatrix, false},
	{"RW/Random", rwRandom, false},

	{"Do/Fences", doFences, false},
	{"Do/LostThoughNil", doLostThoughNil, false},
	{"Do/CauseOnLoss", doCauseOnLoss, false},
	{"Do/JoinsErrors", doJoinsErrors, false},
	{"Do/UnlocksOnPanic", doUnlocksOnPanic, false},
	{"TryDo/Skips", tryDoSkips, false},
	{"Hooks/Panic", hooksPanic, false},

	{"Lead/Terms", leadTerms, false},
	{"Lead/StopsOnError", leadStopsOnError, false},
	{"Lead/SilentServer", leadSilentServer, false},

	{"Multi/AllOrNone", multiAllOrNone, false},
	{"Multi/Duplicates", multiDuplicates, false},
	{"Multi/TokenOf", multiTokenOf, false},
	{"Multi/OppositeOrders", multiOppositeOrders, false},
	{"Multi/LostIfAny", multiLostIfAny, false},
	{"Multi/MaxWait", multiMaxWait, false},
	{"Multi/MaxHold", multiMaxHold, false},

	{"Close/ReleasesHeld", closeReleasesHeld, false},
	{"Close/ReleasesMany", closeReleasesMany, quiet},
	{"Close/UnderALease", closeUnderALease, false},
	{"Close/EndsWaiters", closeEndsWaiters, false},
	{"Close/Twice", closeTwice, false},
	{"Close/Cut", closeCut, false},
	{"Close/BorrowedClientStaysOpen", closeBorrowedClientStaysOpen, false},
	{"Close/NoResidue", closeNoResidue, quiet},

	{"Bad/Names", badNames, quiet},
	{"Bad/TTL", badTTL, quiet},
	{"Bad/Options", badOptions, false},
	{"Bad/ZeroValues", badZeroValues, false},
	{"Bad/NilContext", badNilContext, false},
	{"Bad/URL", badURL, false},
	{"Bad/Credentials", badCredentials, false},
	{"Bad/Unreachable", badUnreachable, false},
	{"Bad/ForeignState", badForeignState, false},
	{"Bad/NoSecrets", badNoSecrets, false},

	{"Inspect/Holder", inspectHolder, false},
	{"Inspect/Waiters", inspectWaiters, false},
	{"Inspect/Readers", inspectReaders, false},
	{"Inspect/Lost", inspectLost, false},
	{"Inspect/LeavesNothing", inspectLeavesNothing, quiet},
	{"Inspect/OnlyReads", inspectOnlyReads, quiet},
	{"Inspect/Names", inspectNames, quiet},
	{"Inspect/NoSecrets", inspectNoSecrets, false},
	{"Inspect/InUse", inspectInUse, false},
	{"Break/Holder", breakHolder, false},
	{"Break/Races", breakRaces, false},
	{"Break/InUse", breakInUse, false},
	{"Ping/Answers", pingAnswers, false},

	{"Register/Proposal", registerProposal, false},
	{"Register/Raise", registerRaise, false},
	{"Register/Known", registerKnown, false},
	{"Register/Rejoin", registerRejoin, false},
	{"Register/Queue", registerQueue, false},

	{"Backend/OptionalInterfaces", optionalInterfaces, false},
	{"Backend/UnsupportedSaysSo", unsupportedSaysSo, false},

	// Last, because a server may keep the tokens of all these names for a while: what
	// looks through its data takes longer then.
	{"Wait/ManyLocks", waitManyLocks, quiet},
	{"Keep/TenThousand", keepTenThousand, quiet},
}

// A Report says what became of the properties of one backend.
type Report struct {
	Backend, Version string
	Total, Passed    int
	NotApplicable    []string // in order: what the harness has no way to, or the backend promises nothing of
	Skipped          []string // in order: what the harness says is lacking
}

// String is the closing line.
func (r Report) String() string {
	return fmt.Sprintf("%s %s: %d properties, %d passed, %d n/a, %d skipped",
		r.Backend, r.Version, r.Total, r.Passed, len(r.NotApplicable), len(r.Skipped))
}

// note counts a property that has run.
func (r *Report) note(t testing.TB, s *scenario, p property) {
	switch {
	case t.Failed():
	case t.Skipped():
		r.Skipped = append(r.Skipped, p.name)
	case s.inapt != "":
		r.NotApplicable = append(r.NotApplicable, p.name)
	default:
		r.Passed++
	}
}

// Run tests the backend behind h, and returns how many properties passed, were
// not applicable, or were skipped. Each property is a subtest. Those that only
// wait run side by side, as many as the -parallel flag allows (16 is a good
// number); then those that need the server for themselves, one by one. With
// leases of 4 s and 16 in parallel a run takes about 90 seconds.
func Run(t *testing.T, h Harness) Report {
	h.check(t)
	report := Report{Backend: h.Name, Version: h.Version, Total: len(properties)}
	var mu sync.Mutex
	run := func(t *testing.T, p property) {
		harness := h
		var s *scenario
		t.Cleanup(func() { // after those of the scenario
			mu.Lock()
			defer mu.Unlock()
			report.note(t, s, p)
		})
		s = newScenario(t, &harness, cmp.Or(limits[p.name], limit))
		p.test(s)
	}
	t.Run("shared", func(t *testing.T) {
		for _, p := range properties {
			if !p.quiet {
				t.Run(p.name, func(t *testing.T) {
					t.Parallel()
					run(t, p)
				})
			}
		}
	})
	for _, p := range properties {
		if p.quiet {
			t.Run(p.name, func(t *testing.T) { run(t, p) })
		}
	}
	slices.Sort(report.NotApplicable)
	slices.Sort(report.Skipped)
	return report
}
