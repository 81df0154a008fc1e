package natsbackend

import (
	"encoding/json"
	"errors"
	"slices"
	"time"
)

// format marks a value as a lock of this package.
const format = "1"

// errForeign is the cause of ErrConflict.
var errForeign = errors.New("the key holds something else")

// A state is the value of a lock's key: who holds it, and who waits, in order.
type state struct {
	Format  string  `json:"dlock"`
	Holders []entry `json:"holders,omitempty"`
	Queue   []entry `json:"queue,omitempty"`
}

// An entry is one request.
type entry struct {
	ID     string        `json:"id"`
	Shared bool          `json:"shared,omitempty"`
	TTL    time.Duration `json:"ttl"`
	Label  string        `json:"label,omitempty"`

	// Beat changes with every sign of life, and is never used twice with one ID,
	// not even if the request leaves the queue and comes back.
	Beat uint64 `json:"beat"`
}

func decode(value []byte) (*state, error) {
	s := &state{Format: format}
	if len(value) == 0 {
		return s, nil
	}
	s.Format = ""
	if err := json.Unmarshal(value, s); err != nil || s.Format != format {
		return nil, errForeign
	}
	return s, nil
}

func (s *state) encode() []byte {
	value, err := json.Marshal(s)
	if err != nil {
		panic(err) // there is nothing in it that could fail
	}
	return value
}

// holder returns the hold with that ID, or nil.
func (s *state) holder(id string) *entry { return find(s.Holders, id) }

// waiter returns the place in the queue with that ID, or nil.
func (s *state) waiter(id string) *entry { return find(s.Queue, id) }

func find(list []entry, id string) *entry {
	for i := range list {
		if list[i].ID == id {
			return &list[i]
		}
	}
	return nil
}

// open reports whether the lock can be had beside those who hold it.
func (s *state) open(shared bool) bool {
	return len(s.Holders) == 0 || shared && s.Holders[0].Shared
}

// enter lets e in if nobody is in its way, and reports whether it did.
func (s *state) enter(e entry) bool {
	if len(s.Queue) > 0 || !s.open(e.Shared) {
		return false
	}
	s.Holders = append(s.Holders, e)
	return true
}

// remove takes out every entry for which gone is true, and lets in who is next.
func (s *state) remove(gone func(e entry) bool) {
	s.Holders = slices.DeleteFunc(s.Holders, gone)
	s.Queue = slices.DeleteFunc(s.Queue, gone)
	s.settle()
}

// settle lets in those at the head of the queue who can be let in.
func (s *state) settle() {
	for len(s.Queue) > 0 && s.open(s.Queue[0].Shared) {
		s.Holders = append(s.Holders, s.Queue[0])
		s.Queue = s.Queue[1:]
	}
}
