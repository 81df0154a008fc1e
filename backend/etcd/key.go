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
// Names of keys are used again, because etcd reads past the deleted keys of a range
// until it is compacted. A key is not used again while a request may be on its way
// that deletes it whatever its create revision is.
type lockKey struct {
	mode  backend.Mode
	dir   string // of the name, with a slash
	tails string // the prefix of the queue's tails
	id    string // no other request of this name and mode has it
	own   string // the key
	void  string // while it exists, the request is not carried out
	keep  bool   // the key's name is not used again
}

// claimKey returns a key for r that nobody uses. It must be freed once it is certainly
// deleted.
func (s *session) claimKey(r backend.Request) *lockKey {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := backend.EncodeName(r.Name) + "/"
	k := &lockKey{mode: r.Mode, dir: s.backend.prefix + "l/" + name, tails: s.backend.prefix + "t/" + name, id: s.id}
	k.own = k.prefix() + k.id
	for n := 1; s.claimed[k.own]; n++ {
		k.id = s.id + "." + strconv.Itoa(n)
		k.own = k.prefix() + k.id
	}
	s.claimed[k.own] = true
	s.requests++
	k.void = s.key + "/void/" + strconv.Itoa(s.requests)
	return k
}

const (
	writers         = "w/"
	readers         = "r/"
	downgradedHolds = "d/"
)

// The value of a key is live and a label, or marked: then its writer has handed the
// lock over to the next in line, and the key is to be deleted.
const (
	live   = "+"
	marked = "-"
)

// prefix is the prefix of the keys of the request's mode.
func (k *lockKey) prefix() string {
	kind := writers
	if k.mode == backend.Shared {
		kind = readers
	}
	return k.dir + kind
}

// downgraded is the key after a downgrade. Its value begins with the create revision
// of the first key.
func (k *lockKey) downgraded() string { return k.dir + downgradedHolds + k.id }

// rivals is the prefix of the keys that conflict with the request.
func (k *lockKey) rivals() string {
	if k.mode == backend.Shared {
		return k.dir + writers
	}
	return k.dir
}

// look reads some of the keys that conflict with the request.
func (k *lockKey) look(limit int64) clientv3.Op {
	return clientv3.OpGet(k.rivals(), clientv3.WithPrefix(), clientv3.WithLimit(limit))
}

// hasNoKeys is true if no key conflicts with the request.
func (k *lockKey) hasNoKeys() clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(k.rivals()).WithPrefix(), "=", 0)
}

// hasOnlyMarked is true if keys conflict with the request, and all of them are marked.
func (k *lockKey) hasOnlyMarked() clientv3.Cmp {
	return clientv3.Compare(clientv3.Value(k.rivals()).WithPrefix(), "=", marked)
}

// formerWriters is the prefix of the keys of downgraded holds. They are newer than the
// keys of the writers that wait for them.
func (k *lockKey) formerWriters() string { return k.dir + downgradedHolds }

// A keyVersion is a key as it was found.
type keyVersion struct {
	key     string
	created int64
}

// nobody is no key.
var nobody keyVersion

func versionOf(kv *mvccpb.KeyValue) keyVersion { return keyVersion{string(kv.Key), kv.CreateRevision} }

func isMarked(kv *mvccpb.KeyValue) bool { return string(kv.Value) == marked }

func isLive(kv *mvccpb.KeyValue) bool { return !isMarked(kv) }

// first returns the first key that was found, nil if none was.
func first(found *pb.RangeResponse) *mvccpb.KeyValue {
	if len(found.GetKvs()) == 0 {
		return nil
	}
	return found.Kvs[0]
}

// exists is true of a key that has not been deleted since.
func (k keyVersion) exists() clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(k.key), "=", k.created)
}

// deleteOps deletes the key as it was found: its name may be in use again.
func (k keyVersion) deleteOps() []clientv3.Op {
	if k == nobody {
		return nil
	}
	return []clientv3.Op{clientv3.OpTxn([]clientv3.Cmp{k.exists()}, []clientv3.Op{clientv3.OpDelete(k.key)}, nil)}
}

func leaseName(id clientv3.LeaseID) string { return strconv.FormatInt(int64(id), 16) }
