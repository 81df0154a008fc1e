package etcd

import (
	"strconv"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/backend"
)

// A lockKey is the key of one request in the queue of one name.
//
// Keys are used again, because etcd goes on looking at deleted ones until it is
// compacted, whenever it reads a range around them. No request to delete the
// former use may then be on its way: each was answered, or demands the former
// create revision, or the guard as it was. Otherwise the key is burnt.
type lockKey struct {
	name string
	mode backend.Mode
	dir  string // of the name, with a slash
	id   string // no other request that is under way has it
	own  string // the key

	// Requests that are kept with it: they take longer to make than to send.
	// asking is for label, wait and guard.
	deleting clientv3.Op
	asking   clientv3.Op
	label    string
	wait     bool
	guard    int64
}

// claim returns a key for r that nobody uses. It must be given up once it is
// certainly gone.
func (s *session) claim(r backend.Request) *lockKey {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := s.spare; k != nil && k.name == r.Name && k.mode == r.Mode {
		s.spare = nil
		return k
	}
	k := &lockKey{name: r.Name, mode: r.Mode, dir: s.backend.prefix + "l/" + backend.EncodeName(r.Name) + "/", id: s.id, guard: -1}
	k.own = k.mine() + k.id
	for n := 1; s.claimed[k.own]; n++ {
		k.id = s.id + "." + strconv.Itoa(n)
		k.own = k.mine() + k.id
	}
	k.deleting = clientv3.OpDelete(k.own)
	s.claimed[k.own] = true
	return k
}

const (
	writers = "w/"
	readers = "r/"
)

// mine is the prefix of the keys of the request's mode.
func (k *lockKey) mine() string {
	kind := writers
	if k.mode == backend.Shared {
		kind = readers
	}
	return k.dir + kind
}

// downgraded is the key after a downgrade, with the create revision of the first
// as its value.
func (k *lockKey) downgraded() string { return k.dir + "d/" + k.id }

// rivals is the prefix of the keys that the request must not be held beside.
func (k *lockKey) rivals() string {
	if k.mode == backend.Shared {
		return k.dir + writers
	}
	return k.dir
}

// formerWriters is the prefix of the keys of readers that were writers. Their
// keys are newer than those of the writers that wait for them.
func (k *lockKey) formerWriters() string { return k.dir + "d/" }

func leaseName(id clientv3.LeaseID) string { return strconv.FormatInt(int64(id), 16) }
