package quorum

import (
	"hash/fnv"
	"sync/atomic"
)

// contendedNames knows names that several clients want: whoever wants one of them asks
// the front alone, and gets in nobody's way at the other nodes. It confuses some names,
// and forgets some, which costs a round trip.
type contendedNames struct {
	hashes [1024]atomic.Uint32
}

func hashOf(name string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name))
	return h.Sum32()
}

func (c *contendedNames) at(hash uint32) *atomic.Uint32 { return &c.hashes[hash%uint32(len(c.hashes))] }

func (c *contendedNames) has(hash uint32) bool { return c.at(hash).Load() == hash|1 }
func (c *contendedNames) add(hash uint32)      { c.at(hash).Store(hash | 1) }
func (c *contendedNames) remove(hash uint32)   { c.at(hash).CompareAndSwap(hash|1, 0) }
