package zk

import (
	"errors"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	gozk "github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/backend"
)

// A node is a child of a lock's node that this client has created: a request that waits
// or holds.
type node struct {
	position
	session      *session
	dir          string
	guid         string
	token        uint64
	sent         time.Time  // when the request was sent that created it
	isFast       bool       // it was created without a write to the lock's node
	dirStat      *gozk.Stat // of the lock's node right after the create; nil: unknown
	isAlone      bool       // the only child right after the create
	predecessors predecessors
	announcement string // its path; empty: there is none
	own          *watch // of this node, while it waits; nil: none yet
}

func (n *node) path() string { return n.dir + "/" + n.name }

// tokens is how many tokens each transaction has, for the goroutines that hand a lock
// over within a client.
const tokens = 1 << 12

func tokenOf(zxid int64) uint64 { return uint64(zxid) * tokens }

// A nodeSpec says how to create a node.
type nodeSpec struct {
	dir    string
	mode   backend.Mode
	label  string
	isFast bool                      // do not write to the lock's node
	token  uint64                    // zero: it follows from the transaction
	check  *gozk.CheckVersionRequest // a condition of the create; nil: none
}

// nodeData is the data of a node: its rank if that is not its own transaction, the label,
// and after a zero byte the token if that does not follow from the rank.
func nodeData(rank int64, label string, token uint64) []byte {
	text := strconv.FormatInt(rank, 10) + " " + label
	if token != 0 {
		text += "\x00" + strconv.FormatUint(token, 10)
	}
	return []byte(text)
}

// parseNodeData reads what nodeData has written. A rank or token that is not there is
// zero.
func parseNodeData(data []byte) (rank int64, label string, token uint64) {
	first, rest, _ := strings.Cut(string(data), " ")
	label, last, _ := strings.Cut(rest, "\x00")
	if n, err := strconv.ParseInt(first, 10, 64); err == nil && n > 0 {
		rank = n
	}
	token, _ = strconv.ParseUint(last, 10, 64)
	return rank, label, token
}

// createNode creates a node. If the answer is lost it finds out whether the node exists,
// and returns ErrNoNode if it does not.
func (s *session) createNode(spec nodeSpec) (*node, error) {
	n, err := s.sendCreate(spec)
	if isUnclear(err) {
		err = s.findNode(n)
	}
	if err != nil {
		return nil, err
	}
	return n, nil
}

func (s *session) sendCreate(spec nodeSpec) (*node, error) {
	n := &node{session: s, dir: spec.dir, guid: newGUID(), sent: time.Now(), isFast: spec.isFast}
	create := &gozk.CreateRequest{
		Path:  spec.dir + "/" + n.guid + "-" + modeLetter(spec.mode) + "-",
		Data:  nodeData(0, spec.label, spec.token),
		Acl:   s.backend.opts.ACL,
		Flags: gozk.FlagEphemeralSequential,
	}
	if n.isFast {
		path, err := s.client.Create(create.Path, create.Data, create.Flags, create.Acl)
		if err != nil {
			return n, err
		}
		s.extendLease(n.sent)
		return n, n.setName(path)
	}
	ops := []any{create, &gozk.SetDataRequest{Path: spec.dir, Version: -1}}
	if spec.check != nil {
		ops = slices.Insert(ops, 0, any(spec.check))
	}
	results, err := s.client.Multi(ops...)
	last := len(ops) - 1
	if err == nil && (len(results) != len(ops) || results[last].Stat == nil) {
		err = errInvalidAnswer
	}
	if err != nil {
		return n, err
	}
	s.extendLease(n.sent)
	n.dirStat = results[last].Stat
	err = n.setName(results[last-1].String)
	n.rank = n.dirStat.Mzxid // of the same transaction as the create
	n.token = tokenOf(n.rank)
	n.isAlone = n.dirStat.NumChildren == 1
	return n, err
}

// setName sets the name and position that the server has given to n.
func (n *node) setName(created string) error {
	p, ok := parsePosition(path.Base(created))
	if !ok {
		return errInvalidAnswer
	}
	n.position = p
	return nil
}

// findNode looks for a node whose create was not answered. The leader carries the sync
// out after everything that was still on its way from the old connection. A node of an
// earlier session does not count: the server is about to delete it.
func (s *session) findNode(n *node) error {
	return s.retry(func() error {
		n.sent = time.Now()
		if _, err := s.client.Sync(n.dir); err != nil {
			return err
		}
		s.extendLease(n.sent)
		children, _, err := s.client.Children(n.dir)
		if err != nil && !errors.Is(err, gozk.ErrNoNode) {
			return err
		}
		for _, p := range parseQueue(children) {
			if strings.HasPrefix(p.name, n.guid) {
				n.position = p
				return s.checkOwner(n)
			}
		}
		return gozk.ErrNoNode
	})
}

// checkOwner returns ErrNoNode if n was not created by this session, and otherwise sets
// its rank and token.
func (s *session) checkOwner(n *node) error {
	found, stat, err := s.client.Exists(n.path())
	if err != nil {
		return err
	}
	if !found || stat.EphemeralOwner != s.sessionID() {
		return gozk.ErrNoNode
	}
	n.rank, n.token = stat.Czxid, tokenOf(stat.Czxid)
	return nil
}

func (s *session) exists(path string) (found bool, err error) {
	err = s.retry(func() error {
		found, _, err = s.client.Exists(path)
		return err
	})
	return found, err
}
