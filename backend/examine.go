package backend

import "context"

// A Level says how bad a [Finding] is.
type Level int

const (
	// OK is a setting that is as it should be.
	OK Level = iota

	// Warning is a setting that will hurt under some condition: locks work now.
	Warning

	// Fault is a setting with which locks do not work, or two can have one while nothing
	// else is wrong.
	Fault
)

// String returns "ok", "warning" or "fault".
func (l Level) String() string {
	switch l {
	case OK:
		return "ok"
	case Warning:
		return "warning"
	default:
		return "fault"
	}
}

// A Finding is one result of [Examiner.Examine].
type Finding struct {
	Level   Level
	Subject string // what was looked at, in one or two words: "eviction"
	Text    string // what was found: "maxmemory-policy is allkeys-lru: the server may evict locks"
	Advice  string // what to do about it: "set it to noeviction"; empty if Level is OK
}

// An Examiner is a Backend that can look at its server for what would hurt locks.
type Examiner interface {
	// Examine calls report for each thing that it has looked at, good or bad, one
	// call at a time. What it tries on the server, it does on a lock of its own, and
	// removes. Findings name no password. An error says that the server could not be
	// examined to the end.
	Examine(ctx context.Context, report func(Finding)) error
}

// Good returns a Finding of something that is as it should be.
func Good(subject, text string) Finding { return Finding{OK, subject, text, ""} }

// Warn returns a Finding of something that will hurt, with what to do about it.
func Warn(subject, text, advice string) Finding { return Finding{Warning, subject, text, advice} }

// Bad is Warn at the level Fault.
func Bad(subject, text, advice string) Finding { return Finding{Fault, subject, text, advice} }
