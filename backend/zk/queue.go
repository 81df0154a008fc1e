package zk

import (
	"crypto/rand"
	"encoding/hex"
	"math"
	"strconv"

	"github.com/dlock-go/dlock/backend"
)

// guidLength is that of 128 random bits in hexadecimal.
const guidLength = 32

func newGUID() string {
	var b [guidLength / 2]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// letter stands for a mode in names and data of nodes.
func letter(m backend.Mode) string {
	if m == backend.Shared {
		return "r"
	}
	return "w"
}

// A place is a node in the queue for a lock, as its name describes it.
type place struct {
	name string
	seq  int32
	mode backend.Mode
	rank int64 // the transaction that queued it; zero: unknown
}

// parsePlace reads the name of a child. It reports false for a name that is
// not of this package's making.
func parsePlace(name string) (place, bool) {
	const head, digits = guidLength + len("-w-"), 10
	if len(name) < head+digits || name[guidLength] != '-' || name[head-1] != '-' {
		return place{}, false
	}
	if _, err := hex.DecodeString(name[:guidLength]); err != nil {
		return place{}, false
	}
	seq, err := strconv.ParseInt(name[head:], 10, 32)
	if err != nil {
		return place{}, false
	}
	p := place{name: name, seq: int32(seq), mode: backend.Exclusive}
	switch name[guidLength+1] {
	case 'w':
	case 'r':
		p.mode = backend.Shared
	default:
		return place{}, false
	}
	return p, true
}

// asReader is the name of the node that p becomes by a downgrade.
func (p place) asReader() string {
	const mode = guidLength + 1
	return p.name[:mode] + letter(backend.Shared) + p.name[mode+1:]
}

// before reports whether p was queued before q. The difference of the numbers
// decides, which is right also across a wrap from the greatest to the smallest.
// Two worn numbers say nothing: then it is the transactions that count.
func (p place) before(q place) bool {
	if p.worn() && q.worn() {
		return p.rank < q.rank
	}
	return p.seq-q.seq < 0
}

// worn reports whether the server has run out of sequence numbers. From then
// on it gives the greatest to everybody, with a few negative ones in between.
func (p place) worn() bool { return p.seq == math.MaxInt32 || p.seq < 0 }

// bars reports whether p, if it is ahead, keeps a request of mode m waiting.
func (p place) bars(m backend.Mode) bool {
	return m == backend.Exclusive || p.mode == backend.Exclusive
}

// A queue is the children of a lock's node that this package has made.
type queue []place

func parseQueue(children []string) queue {
	q := make(queue, 0, len(children))
	for _, name := range children {
		if p, ok := parsePlace(name); ok {
			q = append(q, p)
		}
	}
	return q
}

// find returns the place of that name.
func (q queue) find(name string) (place, bool) {
	for _, p := range q {
		if p.name == name {
			return p, true
		}
	}
	return place{}, false
}

// A barrier is what keeps a node waiting: how many are in its way, and which
// of them came last. The zero barrier keeps nobody.
type barrier struct {
	count int
	last  place
}

func (b *barrier) add(p place) {
	if b.count == 0 || b.last.before(p) {
		b.last = p
	}
	b.count++
}

// barring returns the barrier for a request of mode m behind all of q.
func (q queue) barring(m backend.Mode) (b barrier) {
	for _, p := range q {
		if p.bars(m) {
			b.add(p)
		}
	}
	return b
}

// ahead returns the barrier for own, which is in q.
func (q queue) ahead(own place) barrier {
	var lower queue
	for _, p := range q {
		if p.before(own) {
			lower = append(lower, p)
		}
	}
	return lower.barring(own.mode)
}
