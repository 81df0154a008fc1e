package zk

import (
	"errors"
	"path"
	"strconv"
	"strings"
	"time"

	gozk "github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/backend"
)

// A node is a child that this client has made in the node of a lock.
type node struct {
	place
	session *session
	dir     string
	guid    string
	token   uint64
	sent    time.Time  // when the request was sent that made it
	plain   bool       // the lock's node does not show it was made
	parent  *gozk.Stat // of dir right after it was made; nil: unknown
	alone   bool       // it is known to have been the only one then
	barrier barrier
}

func (n *node) path() string { return n.dir + "/" + n.name }

// undisturbed reports whether nobody has made a node between a look at the lock's
// node, which found stat, and n. A node's number says how many there were before;
// stat counts those twice that were made and not removed since.
func (n *node) undisturbed(stat *gozk.Stat) bool { return 2*n.seq == stat.Cversion+stat.NumChildren }

// tokenOf makes room in the id of a transaction for local hand-over.
func tokenOf(zxid int64) uint64 { return uint64(zxid) * tokens }

// tokens is how many there are to each zxid, for the goroutines that pass a
// hold on.
const tokens = 1 << 12

// A draft says how to make a node.
type draft struct {
	dir    string
	mode   backend.Mode
	label  string
	guards []any // what must hold for the node to be made
	mark   bool  // set the data of dir: it dates the node and tells who else is there
}

// data is what a node says of itself: its rank, where that is not its own, and
// a label for people.
func data(rank int64, label string) []byte {
	return []byte(strconv.FormatInt(rank, 10) + " " + label)
}

// rankOf is the rank in data, or own if there is none.
func rankOf(data []byte, own int64) int64 {
	text, _, _ := strings.Cut(string(data), " ")
	if rank, err := strconv.ParseInt(text, 10, 64); err == nil && rank > 0 {
		return rank
	}
	return own
}

// create makes a node. It returns ErrNoNode also if the reply was lost and the
// node is not there.
func (s *session) create(d draft) (*node, error) { return s.send(d).confirm() }

// A sent is a node that the server was asked to make, and what it said.
type sent struct {
	node *node
	err  error
}

// send asks once for a node.
func (s *session) send(d draft) sent {
	n := &node{session: s, dir: d.dir, guid: newGUID(), sent: time.Now()}
	create := &gozk.CreateRequest{
		Path:  d.dir + "/" + n.guid + "-" + letter(d.mode) + "-",
		Data:  data(0, d.label),
		Acl:   s.b.opts.ACL,
		Flags: gozk.FlagEphemeralSequential,
	}
	if n.plain = len(d.guards) == 0 && !d.mark; n.plain {
		made, err := s.conn.Create(create.Path, create.Data, create.Flags, create.Acl)
		if err == nil {
			s.proved(n.sent)
			n.place, _ = parsePlace(path.Base(made))
		}
		return sent{n, err}
	}
	ops := append(d.guards, create)
	if d.mark {
		ops = append(ops, &gozk.SetDataRequest{Path: d.dir, Version: -1})
	}
	results, err := s.conn.Multi(ops...)
	if err != nil {
		return sent{n, err}
	}
	s.proved(n.sent)
	n.place, _ = parsePlace(path.Base(results[len(d.guards)].String))
	if d.mark {
		n.parent = results[len(results)-1].Stat
		n.rank = n.parent.Mzxid // one transaction, one id
		n.token = tokenOf(n.rank)
		n.alone = n.parent.NumChildren == 1
	}
	return sent{n, nil}
}

// confirm finds out what became of the request if the server did not say.
func (r sent) confirm() (*node, error) {
	switch {
	case unclear(r.err):
		return r.node, r.node.session.find(r.node)
	case r.err != nil:
		return nil, r.err
	}
	return r.node, nil
}

// find looks for a node whose making was not confirmed. The sync goes through
// the leader behind whatever the old connection still had under way; a node of
// an older session is as good as gone.
func (s *session) find(n *node) error {
	return s.persist(func() error {
		n.sent = time.Now()
		if _, err := s.conn.Sync(n.dir); err != nil {
			return err
		}
		s.proved(n.sent)
		children, _, err := s.conn.Children(n.dir)
		if err != nil && !errors.Is(err, gozk.ErrNoNode) {
			return err
		}
		for _, p := range parseQueue(children) {
			if strings.HasPrefix(p.name, n.guid) {
				n.place = p
				return s.recognise(n)
			}
		}
		return gozk.ErrNoNode
	})
}

// recognise takes from a node that was found when it was made, if this session
// has made it.
func (s *session) recognise(n *node) error {
	found, stat, err := s.conn.Exists(n.path())
	if err != nil {
		return err
	}
	if !found || stat.EphemeralOwner != s.sessionID() {
		return gozk.ErrNoNode
	}
	n.rank, n.token = stat.Czxid, tokenOf(stat.Czxid)
	return nil
}

func (s *session) sessionID() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.id
}

// children lists a node.
func (s *session) children(dir string) (children []string, stat *gozk.Stat, err error) {
	err = s.persist(func() error {
		children, stat, err = s.conn.Children(dir)
		return err
	})
	return children, stat, err
}

// list returns the queue for a lock, with what is known of the lock's node.
func (s *session) list(dir string) (queue, *gozk.Stat, error) {
	children, stat, err := s.children(dir)
	if err != nil {
		return nil, nil, err
	}
	q, err := s.date(dir, parseQueue(children))
	return q, stat, err
}

// date looks up when the nodes were made whose numbers do not tell. It leaves
// out those that have gone.
func (s *session) date(dir string, q queue) (queue, error) {
	dated := q[:0]
	for _, p := range q {
		found := true
		if p.worn() {
			err := s.persist(func() error {
				data, stat, err := s.conn.Get(dir + "/" + p.name)
				if err == nil {
					p.rank = rankOf(data, stat.Czxid)
				}
				return err
			})
			found = !errors.Is(err, gozk.ErrNoNode)
			if found && err != nil {
				return nil, err
			}
		}
		if found {
			dated = append(dated, p)
		}
	}
	return dated, nil
}

// look sets the barrier of n by what is ahead of it now.
func (n *node) look() error {
	q, _, err := n.session.list(n.dir)
	if err != nil && !errors.Is(err, gozk.ErrNoNode) {
		return err
	}
	own, ok := q.find(n.name)
	if !ok {
		return errVanished
	}
	n.barrier = q.ahead(own)
	return nil
}

// remove deletes a node, and goes on until it is gone. It returns ErrNoNode if
// it was gone before, errOver if it went with the session.
func (s *session) remove(path string) error {
	r := removal{session: s, path: path}
	return s.persist(r.try)
}

// A removal is the deletion of a node, which is tried until its outcome is clear.
type removal struct {
	session *session
	path    string
	told    bool // those who wait for the node see that it was not just anybody who went
	tried   bool
}

func (r *removal) try() error {
	sent := time.Now()
	err := r.request()
	if err == nil {
		r.session.proved(sent)
	}
	if r.tried && errors.Is(err, gozk.ErrNoNode) {
		return nil // it was the first try
	}
	r.tried = true
	return err
}

func (r *removal) request() error {
	if !r.told {
		return r.session.conn.Delete(r.path, -1)
	}
	_, err := r.session.conn.Multi(&gozk.SetDataRequest{Path: r.path, Version: -1}, &gozk.DeleteRequest{Path: r.path, Version: -1})
	return err
}

// ensure makes the node of a lock and those above it.
func (s *session) ensure(dir string) error {
	for {
		err := s.persist(func() error { return s.makeDir(dir) })
		switch {
		case errors.Is(err, gozk.ErrNodeExists):
			return nil
		case !errors.Is(err, gozk.ErrNoNode) || path.Dir(dir) == "/":
			return err
		}
		if err := s.ensure(path.Dir(dir)); err != nil {
			return err
		}
	}
}

// makeDir makes a node that the server removes when it has been emptied, or
// one that stays if the server is too old for that.
func (s *session) makeDir(dir string) error {
	if !s.b.plain.Load() {
		_, err := s.conn.CreateContainer(dir, nil, gozk.FlagContainer, s.b.opts.ACL)
		if !unimplemented(err) {
			return err
		}
		s.b.plain.Store(true)
		s.b.opts.Logger.Warn("dlock: zookeeper: the server has no container nodes: the nodes of locks stay")
	}
	_, err := s.conn.Create(dir, nil, gozk.FlagPersistent, s.b.opts.ACL)
	return err
}
