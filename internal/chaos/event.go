package chaos

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/dlock-go/dlock"
)

// A Kind says what an event tells.
type Kind string

const (
	Asked     Kind = "asked"     // a lock was asked for
	Granted   Kind = "granted"   // with Token
	Failed    Kind = "failed"    // it was not granted: Err says why
	Wrote     Kind = "wrote"     // Seen was read and Seen+1 written under the lock, without a fence
	Unlocking Kind = "unlocking" // the lease is about to be unlocked
	Unlocked  Kind = "unlocked"  // it is, or Err says what became of it
	Lost      Kind = "lost"      // the lease ended by itself
	Stalled   Kind = "stalled"   // the process did not run from the time Seen until now
	Refused   Kind = "refused"   // the store did not take a write
	Finished  Kind = "finished"  // the client is closed: Err says what it left behind
)

// An Event is one line of a worker's log.
type Event struct {
	At     int64  `json:"t"` // by Now
	Kind   Kind   `json:"k"`
	Call   int    `json:"c,omitempty"` // counts the worker's calls from 1
	Key    string `json:"n,omitempty"`
	Shared bool   `json:"r,omitempty"`
	Try    bool   `json:"y,omitempty"`
	Under  int    `json:"u,omitempty"` // the call whose lease is entered again
	Token  uint64 `json:"f,omitempty"`
	Seen   int64  `json:"v,omitempty"`
	Err    Class  `json:"e,omitempty"`
	Text   string `json:"x,omitempty"` // the error in full
}

// A Class is what kind of error a call returned. Empty means none.
type Class string

const (
	Held        Class = "held"
	IsLost      Class = "lost"
	Unavailable Class = "unavailable"
	Cancelled   Class = "cancelled" // before anything was asked
	Wrong       Class = "wrong"     // an error that no fault explains
)

// classify names err by the promise of package dlock that it falls under.
func classify(err error) Class {
	var e *dlock.Error
	switch {
	case err == nil:
		return ""
	case errors.Is(err, dlock.ErrHeld):
		return Held
	case errors.Is(err, dlock.ErrLost):
		return IsLost
	case errors.Is(err, dlock.ErrUnavailable):
		return Unavailable
	case errors.As(err, &e) && e.Kind == nil:
		return Cancelled
	}
	return Wrong
}

// A journal writes events to a file, each in one write, so that what is written
// survives the end of the process at any moment.
type journal struct {
	mu   sync.Mutex
	file *os.File
}

func newJournal(path string) (*journal, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	return &journal{file: f}, err
}

func (j *journal) write(e Event) {
	line, err := json.Marshal(e)
	if err != nil {
		panic(err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if _, err := j.file.Write(append(line, '\n')); err != nil {
		panic(err) // without its history a worker proves nothing
	}
}

func (j *journal) close() error { return j.file.Close() }

// readJournal returns the events of a log in order. The last line of a process
// that was killed may be cut short.
func readJournal(path string) ([]Event, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var events []Event
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			if lines.Scan() {
				return nil, fmt.Errorf("%s: line %d: %w", path, len(events)+1, err)
			}
			break
		}
		events = append(events, e)
	}
	return events, lines.Err()
}
