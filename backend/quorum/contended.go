package quorum

import (
	"hash/fnv"
	"sync/atomic"
)

// A memory knows names that several want. It confuses some, and forgets some,
// which costs a round trip.
type memory struct {
	marks [1024]atomic.Uint32
}

func hashOf(name string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name))
	return h.Sum32()
}

func (m *memory) has(hash uint32) bool { return m.marks[hash%uint32(len(m.marks))].Load() == hash|1 }

func (m *memory) keep(hash uint32) {
	if !m.has(hash) {
		m.marks[hash%uint32(len(m.marks))].Store(hash | 1)
	}
}

func (m *memory) forget(hash uint32) {
	m.marks[hash%uint32(len(m.marks))].CompareAndSwap(hash|1, 0)
}
