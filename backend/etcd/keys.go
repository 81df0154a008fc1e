package etcd

import (
	"strconv"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/backend"
)

// A lockKey is the key of one request in the queue of one name.
type lockKey struct {
	dir  string // of the name, with a slash
	kind string // w/ or r/
	id   string
}

func (b *Backend) lockKey(r backend.Request) lockKey {
	kind := "w/"
	if r.Mode == backend.Shared {
		kind = "r/"
	}
	return lockKey{b.prefix + "l/" + backend.EncodeName(r.Name) + "/", kind, backend.EncodeName(r.ID)}
}

// own is the request's key, downgraded the one it has after a downgrade.
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

func (b *Backend) guardKey(id clientv3.LeaseID) string {
	return b.prefix + "s/" + strconv.FormatInt(int64(id), 16)
}
