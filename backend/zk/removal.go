package zk

import (
	"errors"
	"time"

	gozk "github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/backend"
)

// markOf is the path of the mark of a node. A mark is made and deleted in the
// transaction that deletes a writer's node, so that only a watch sees it. It comes
// before the end of a node that had the lock, and after the end of one that waited:
// then it only takes the watches off that are still there.
func markOf(path string) string { return path + markSuffix }

const markSuffix = "-free"

// An ending says what the deletion of a node tells.
type ending uint8

const (
	endsPlainly ending = iota // nothing
	endsFreeing               // nobody is left before those who come after it
	endsWaiting               // it never had the lock
)

// A removal is the deletion of a node, which is tried until its outcome is clear.
type removal struct {
	session *session
	path    string
	ending  ending
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
	if r.ending == endsPlainly {
		return r.session.conn.Delete(r.path, -1)
	}
	_, err := r.session.conn.Multi(r.ops()...)
	if err != nil && !unclear(err) && !errors.Is(err, gozk.ErrNoNode) {
		r.ending = endsPlainly // without the mark, which a quota forbids
		return r.request()
	}
	return err
}

// ops are what the transaction consists of.
func (r *removal) ops() []any {
	end := &gozk.DeleteRequest{Path: r.path, Version: -1}
	mark := []any{
		&gozk.CreateRequest{Path: markOf(r.path), Acl: r.session.b.opts.ACL, Flags: gozk.FlagEphemeral},
		&gozk.DeleteRequest{Path: markOf(r.path), Version: -1},
	}
	switch r.ending {
	case endsFreeing:
		return append(mark, end)
	case endsWaiting:
		return append([]any{end}, mark...)
	}
	return []any{end}
}

// leave deletes a node that does not hold the lock, and goes on until it is gone.
func (n *node) leave() error {
	r := removal{session: n.session, path: n.path()}
	if n.mode == backend.Exclusive && !n.alone {
		r.ending = endsWaiting
	}
	return n.session.persist(r.try)
}
