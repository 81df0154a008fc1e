package etcd

import (
	"strconv"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/backend"
)

// A lockKey is the key of one request in the queue of one name.
//
// Keys are used again, because etcd goes on looking at deleted ones until it is
// compacted, whenever it reads a range around them. No request that deletes the
// former use whatever its create revision may then be on its way: one that may be
// burns the key.
type lockKey struct {
	name string
	mode backend.Mode
	dir  string // of the name, with a slash
	id   string // no other request that is under way has it
	own  string // the key
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
	k := &lockKey{name: r.Name, mode: r.Mode, dir: s.backend.prefix + "l/" + backend.EncodeName(r.Name) + "/", id: s.id}
	k.own = k.mine() + k.id
	for n := 1; s.claimed[k.own]; n++ {
		k.id = s.id + "." + strconv.Itoa(n)
		k.own = k.mine() + k.id
	}
	s.claimed[k.own] = true
	return k
}

const (
	writers         = "w/"
	readers         = "r/"
	downgradedHolds = "d/"
)

// The value of a key is live and a label, or released: then its writer has given
// the lock back to the next in line, and the key only waits to be deleted.
const (
	live     = "+"
	released = "-"
)

// mine is the prefix of the keys of the request's mode.
func (k *lockKey) mine() string {
	kind := writers
	if k.mode == backend.Shared {
		kind = readers
	}
	return k.dir + kind
}

// downgraded is the key after a downgrade. Its value begins with the create revision of
// the first.
func (k *lockKey) downgraded() string { return k.dir + downgradedHolds + k.id }

// rivals is the prefix of the keys that the request must not be held beside.
func (k *lockKey) rivals() string {
	if k.mode == backend.Shared {
		return k.dir + writers
	}
	return k.dir
}

// formerWriters is the prefix of the keys of readers that were writers. Their
// keys are newer than those of the writers that wait for them.
func (k *lockKey) formerWriters() string { return k.dir + downgradedHolds }

// A seenKey is a key as it was found. The zero value is none.
type seenKey struct {
	key     string
	created int64
}

func seen(kv *mvccpb.KeyValue) seenKey { return seenKey{string(kv.Key), kv.CreateRevision} }

func isReleased(kv *mvccpb.KeyValue) bool { return string(kv.Value) == released }

// first returns the first key that was found, nil if none was.
func first(found *pb.RangeResponse) *mvccpb.KeyValue {
	if len(found.GetKvs()) == 0 {
		return nil
	}
	return found.Kvs[0]
}

// stands is true of a key that has not been deleted since.
func (k seenKey) stands() clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(k.key), "=", k.created)
}

// tidy deletes a released key as it was found, for its name may be in use again.
func (k seenKey) tidy() []clientv3.Op {
	if k.key == "" {
		return nil
	}
	return []clientv3.Op{clientv3.OpTxn([]clientv3.Cmp{k.stands()}, []clientv3.Op{clientv3.OpDelete(k.key)}, nil)}
}

func leaseName(id clientv3.LeaseID) string { return strconv.FormatInt(int64(id), 16) }
