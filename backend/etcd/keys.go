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
	dir  string // of the name, with a slash
	kind string // w/ or r/
	id   string // no other request that is under way has it
}

// claim returns a key for r that nobody uses. It must be given up once it is
// certainly gone.
func (s *session) claim(r backend.Request) lockKey {
	k := lockKey{dir: s.backend.prefix + "l/" + backend.EncodeName(r.Name) + "/", kind: "w/", id: s.id}
	if r.Mode == backend.Shared {
		k.kind = "r/"
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for n := 1; ; n++ {
		if _, used := s.claimed[k.own()]; !used {
			s.claimed[k.own()] = struct{}{}
			return k
		}
		k.id = s.id + "." + strconv.Itoa(n)
	}
}

// own is the request's key, downgraded the one it has after a downgrade, with
// the create revision of the first as its value.
func (k lockKey) own() string        { return k.dir + k.kind + k.id }
func (k lockKey) downgraded() string { return k.dir + "d/" + k.id }

// rivals is the prefix of the keys that the request must not be held beside.
func (k lockKey) rivals() string {
	if k.kind == "r/" {
		return k.dir + "w/"
	}
	return k.dir
}

// formerWriters is the prefix of the keys of readers that were writers. Their
// keys are newer than those of the writers that wait for them.
func (k lockKey) formerWriters() string { return k.dir + "d/" }

func leaseName(id clientv3.LeaseID) string { return strconv.FormatInt(int64(id), 16) }
