package zk

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"math"
	"strconv"

	gozk "github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/backend"
)

// guidLength is that of 128 random bits in hexadecimal.
const guidLength = 32

func newGUID() string {
	var b [guidLength / 2]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// modeLetter is the letter of a mode in the names of nodes.
func modeLetter(m backend.Mode) string {
	if m == backend.Shared {
		return "r"
	}
	return "w"
}

// A position is a node's place in the queue of a lock, as its name tells it.
type position struct {
	name string
	seq  int32
	mode backend.Mode
	rank int64 // the transaction that created it; zero: unknown
}

// parsePosition reads the name of a child. It reports false for a name that is not one
// of this package.
func parsePosition(name string) (position, bool) {
	const head, digits = guidLength + len("-w-"), 10
	if len(name) < head+digits || name[guidLength] != '-' || name[head-1] != '-' {
		return position{}, false
	}
	if _, err := hex.DecodeString(name[:guidLength]); err != nil {
		return position{}, false
	}
	seq, err := strconv.ParseInt(name[head:], 10, 32)
	if err != nil {
		return position{}, false
	}
	p := position{name: name, seq: int32(seq), mode: backend.Exclusive}
	switch name[guidLength+1] {
	case 'w':
	case 'r':
		p.mode = backend.Shared
	default:
		return position{}, false
	}
	return p, true
}

// readerName is the name of the node that replaces p in a downgrade.
func (p position) readerName() string {
	const mode = guidLength + 1
	return p.name[:mode] + modeLetter(backend.Shared) + p.name[mode+1:]
}

// precedes reports whether p joined the queue before q. The difference of the sequence
// numbers tells, even after they have wrapped from the greatest to the smallest. If both
// have overflowed, the ranks tell.
func (p position) precedes(q position) bool {
	if p.hasOverflowed() && q.hasOverflowed() {
		return p.rank < q.rank
	}
	return p.seq-q.seq < 0
}

// byPlace orders positions for slices.SortFunc.
func byPlace(p, q position) int {
	if p.precedes(q) {
		return -1
	}
	return 1
}

// hasOverflowed reports whether the server had no sequence numbers left. Then it gives
// the greatest to every node, with a few negative ones in between.
func (p position) hasOverflowed() bool { return p.seq == math.MaxInt32 || p.seq < 0 }

// conflictsWith reports whether a request of mode m must wait for p.
func (p position) conflictsWith(m backend.Mode) bool {
	return m == backend.Exclusive || p.mode == backend.Exclusive
}

// A queue holds the children of a lock's node that this package has created, in no order.
type queue []position

func parseQueue(children []string) queue {
	q := make(queue, 0, len(children))
	for _, name := range children {
		if p, ok := parsePosition(name); ok {
			q = append(q, p)
		}
	}
	return q
}

func (q queue) find(name string) (position, bool) {
	for _, p := range q {
		if p.name == name {
			return p, true
		}
	}
	return position{}, false
}

// The predecessors of a request are the positions that it waits for.
type predecessors struct {
	count int
	last  position // set if there are any
}

// conflicting returns the predecessors of a request of mode m that would join q now.
func (q queue) conflicting(m backend.Mode) (all predecessors) {
	for _, p := range q {
		if p.conflictsWith(m) {
			all.add(p)
		}
	}
	return all
}

// predecessorsOf returns the predecessors of own, which is in q.
func (q queue) predecessorsOf(own position) (all predecessors) {
	for _, p := range q {
		if p.conflictsWith(own.mode) && p.precedes(own) {
			all.add(p)
		}
	}
	return all
}

func (all *predecessors) add(p position) {
	if all.count == 0 || all.last.precedes(p) {
		all.last = p
	}
	all.count++
}

// listQueue returns the queue of a lock, and the state of the lock's node.
func (s *session) listQueue(dir string) (queue, *gozk.Stat, error) {
	var children []string
	var stat *gozk.Stat
	err := s.retry(func() (err error) {
		children, stat, err = s.client.Children(dir)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	q, err := s.readRanks(dir, parseQueue(children))
	return q, stat, err
}

// readRanks reads the rank of each position whose sequence number has overflowed. It
// leaves out those whose nodes have gone.
func (s *session) readRanks(dir string, q queue) (queue, error) {
	found := q[:0]
	for _, p := range q {
		if p.hasOverflowed() {
			err := s.retry(func() error {
				data, stat, err := s.client.Get(dir + "/" + p.name)
				if err == nil {
					rank, _, _ := parseNodeData(data)
					p.rank = cmp.Or(rank, stat.Czxid)
				}
				return err
			})
			if errors.Is(err, gozk.ErrNoNode) {
				continue
			}
			if err != nil {
				return nil, err
			}
		}
		found = append(found, p)
	}
	return found, nil
}
