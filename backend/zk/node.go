package zk

import (
	"cmp"
	"errors"
	"path"
	"slices"
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

// tokenOf makes room in the id of a transaction for local hand-over.
func tokenOf(zxid int64) uint64 { return uint64(zxid) * tokens }

// tokens is how many there are to each zxid, for the goroutines that pass a
// hold on.
const tokens = 1 << 12

// A draft says how to make a node.
type draft struct {
	dir   string
	mode  backend.Mode
	label string
	plain bool                      // leave the data of dir alone
	token uint64                    // of the hold, if the node will not tell by its transaction; 0: it will
	guard *gozk.CheckVersionRequest // what must hold for the node to be made; nil: nothing
}

// data is what a node says of itself: its rank, where that is not its own, a label for
// people, and behind a zero byte the token of its hold, where that is not by its rank.
func data(rank int64, label string, token uint64) []byte {
	text := strconv.FormatInt(rank, 10) + " " + label
	if token != 0 {
		text += "\x00" + strconv.FormatUint(token, 10)
	}
	return []byte(text)
}

// labelOf and tokenIn are the label and the token in data; 0: there is no token.
func labelOf(data []byte) string {
	_, text, _ := strings.Cut(string(data), " ")
	label, _, _ := strings.Cut(text, "\x00")
	return label
}

func tokenIn(data []byte) uint64 {
	_, text, _ := strings.Cut(string(data), "\x00")
	token, _ := strconv.ParseUint(text, 10, 64)
	return token
}

// rankOf is the rank in data, or own if there is none.
func rankOf(data []byte, own int64) int64 {
	text, _, _ := strings.Cut(string(data), " ")
	if rank, err := strconv.ParseInt(text, 10, 64); err == nil && rank > 0 {
		return rank
	}
	return own
}

// create makes a node, and finds out what became of it if the server did not say. It
// returns ErrNoNode also if the reply was lost and the node is not there.
func (s *session) create(d draft) (*node, error) {
	n, err := s.send(d)
	if unclear(err) {
		err = s.find(n)
	}
	if err != nil {
		return nil, err
	}
	return n, nil
}

// send asks once for a node.
func (s *session) send(d draft) (*node, error) {
	n := &node{session: s, dir: d.dir, guid: newGUID(), sent: time.Now(), plain: d.plain}
	create := &gozk.CreateRequest{
		Path:  d.dir + "/" + n.guid + "-" + letter(d.mode) + "-",
		Data:  data(0, d.label, d.token),
		Acl:   s.b.opts.ACL,
		Flags: gozk.FlagEphemeralSequential,
	}
	if n.plain {
		made, err := s.conn.Create(create.Path, create.Data, create.Flags, create.Acl)
		if err != nil {
			return n, err
		}
		s.proved(n.sent)
		return n, n.named(made)
	}
	ops := []any{create, &gozk.SetDataRequest{Path: d.dir, Version: -1}}
	if d.guard != nil {
		ops = slices.Insert(ops, 0, any(d.guard)) // the data of the lock's node have a version too
	}
	results, err := s.conn.Multi(ops...)
	last := len(ops) - 1
	if err == nil && (len(results) != len(ops) || results[last].Stat == nil) {
		err = errNonsense
	}
	if err != nil {
		return n, err
	}
	s.proved(n.sent)
	n.parent = results[last].Stat
	err = n.named(results[last-1].String)
	n.rank = n.parent.Mzxid // one transaction, one id
	n.token = tokenOf(n.rank)
	n.alone = n.parent.NumChildren == 1
	return n, err
}

// named takes over what the server has called n.
func (n *node) named(made string) error {
	p, ok := parsePlace(path.Base(made))
	if !ok {
		return errNonsense
	}
	n.place = p
	return nil
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

// isFree returns the version of a lock's node if nothing there bars a request of
// mode m, else ErrHeld.
func (s *session) isFree(dir string, m backend.Mode) (version int32, err error) {
	if stands, err := s.witnessStands(dir, m); stands || err != nil {
		return 0, cmp.Or(err, backend.ErrHeld)
	}
	q, stat, err := s.list(dir)
	if err != nil {
		return 0, err
	}
	b := q.barring(m)
	s.keepWitness(dir, m, b)
	if b.count > 0 {
		return 0, backend.ErrHeld
	}
	return stat.Version, nil
}

// longQueue is how long a queue is that whoever does not wait looks at only once,
// for as long as the node stands that was the last in it.
const longQueue = 64

// maxWitnesses is for how many locks that is remembered.
const maxWitnesses = 64

// A crowd is a lock with requests of one mode that do not wait.
type crowd struct {
	dir  string
	mode backend.Mode
}

func (s *session) keepWitness(dir string, m backend.Mode, b barrier) {
	if b.count <= longQueue {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.witnesses) >= maxWitnesses {
		clear(s.witnesses)
	}
	s.witnesses[crowd{dir, m}] = dir + "/" + b.last.name
}

// witnessStands reports whether a node is still there that bars requests of mode m.
func (s *session) witnessStands(dir string, m backend.Mode) (bool, error) {
	s.mu.Lock()
	path := s.witnesses[crowd{dir, m}]
	s.mu.Unlock()
	if path == "" {
		return false, nil
	}
	found, err := s.exists(path)
	if err == nil && !found {
		s.mu.Lock()
		delete(s.witnesses, crowd{dir, m})
		s.mu.Unlock()
	}
	return found, err
}

func (s *session) exists(path string) (found bool, err error) {
	err = s.persist(func() error {
		found, _, err = s.conn.Exists(path)
		return err
	})
	return found, err
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

// recheck makes sure that n still waits, for a node that is still there: two
// requests, however long the queue.
func (n *node) recheck() error {
	switch found, err := n.session.exists(n.path()); {
	case err != nil:
		return err
	case !found:
		return errVanished
	}
	last := n.dir + "/" + n.barrier.last.name
	found, err := n.session.exists(last)
	if err == nil && !found {
		n.session.fire(last, written) // whatever became of it
	}
	return err
}
