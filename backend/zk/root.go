package zk

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	gozk "github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/backend"
)

// anchor is a child of the root that stays. ZooKeeper lets anybody delete an empty
// node whose parent is open to everybody, as / is, and make it anew as their own. No
// lock has that name: the names of locks do not begin with a dot.
const anchor = ".dlock"

// change are the permissions by which a stranger can take a lock away.
const changePerms = gozk.PermWrite | gozk.PermCreate | gozk.PermDelete | gozk.PermAdmin

// isOpen reports whether everybody who reaches the server may change what has acl.
func isOpen(acl []gozk.ACL) bool {
	return slices.ContainsFunc(acl, func(a gozk.ACL) bool { return a.Scheme == "world" && a.Perms&changePerms != 0 })
}

// letsStrangersIn reports whether others than those whom own names may change what
// has acl. Other users are no strangers: an operator has let them in.
func letsStrangersIn(acl, own []gozk.ACL) bool {
	return slices.ContainsFunc(acl, func(a gozk.ACL) bool {
		return (a.Scheme == "world" || a.Scheme == "ip") && a.Perms&changePerms != 0 && !slices.Contains(own, a)
	})
}

// maxVouched is how many locks' nodes are remembered to be closed to strangers.
const maxVouched = 4096

// isVouched reports whether dir is known to be closed to strangers, or need not be.
func (s *session) isVouched(dir string) bool {
	if isOpen(s.b.opts.ACL) {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.vouched[dir]
}

// vouch makes sure that strangers may not change dir, whoever has made it. It
// returns ErrNoNode if there is no such node.
func (s *session) vouch(dir string) error {
	if s.isVouched(dir) {
		return nil
	}
	var acl []gozk.ACL
	err := s.persist(func() (err error) {
		acl, _, err = s.conn.GetACL(dir)
		return err
	})
	if err != nil {
		return err
	}
	if letsStrangersIn(acl, s.b.opts.ACL) {
		return backend.Fail(backend.ErrConflict, fmt.Errorf("everybody may change the node %s", dir))
	}
	s.keepVouched(dir)
	return nil
}

func (s *session) keepVouched(dir string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.vouched) >= maxVouched {
		clear(s.vouched)
	}
	s.vouched[dir] = true
}

// inspectRoot looks at the root when a client is opened. One that is to be closed to
// strangers is made then, before anybody else does, and anchored.
func (s *session) inspectRoot() error {
	root := s.b.opts.Root
	if isOpen(s.b.opts.ACL) {
		return s.persist(func() error { _, _, err := s.conn.Get(root); return err })
	}
	err := s.vouch(root)
	if errors.Is(err, gozk.ErrNoNode) {
		if made, err := s.ensure(root); made || err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	err = s.persist(func() error {
		_, err := s.conn.Create(path.Join(root, anchor), nil, gozk.FlagPersistent, s.b.opts.ACL)
		return err
	})
	if errors.Is(err, gozk.ErrNodeExists) {
		return nil
	}
	return err
}

// ensure makes the node of a lock and those above it. It reports whether the node
// was not there before.
func (s *session) ensure(dir string) (made bool, err error) {
	for {
		err := s.persist(func() error { return s.makeNode(dir) })
		switch {
		case err == nil:
			s.keepVouched(dir)
			return true, nil
		case errors.Is(err, gozk.ErrNodeExists):
			return false, s.vouchBelow(dir)
		case !errors.Is(err, gozk.ErrNoNode) || path.Dir(dir) == "/":
			return false, err
		}
		if _, err := s.ensure(path.Dir(dir)); err != nil {
			return false, err
		}
	}
}

// vouchBelow is vouch for the root and what is below it. What is above belongs to
// somebody else.
func (s *session) vouchBelow(dir string) error {
	if !strings.HasPrefix(dir+"/", s.b.opts.Root+"/") {
		return nil
	}
	if err := s.vouch(dir); !errors.Is(err, gozk.ErrNoNode) {
		return err
	}
	return nil // it has just gone, as the next request will find
}

// makeNode makes a node that stays, or for a lock one that the server removes when
// it has been emptied, if it is new enough for that.
func (s *session) makeNode(dir string) error {
	acl := s.b.opts.ACL
	stays := &gozk.CreateRequest{Path: dir, Acl: acl, Flags: gozk.FlagPersistent}
	switch {
	case dir == s.b.opts.Root:
		_, err := s.conn.Multi(stays, &gozk.CreateRequest{Path: path.Join(dir, anchor), Acl: acl, Flags: gozk.FlagPersistent})
		return err
	case path.Dir(dir) == s.b.opts.Root && !s.b.plain.Load():
		_, err := s.conn.CreateContainer(dir, nil, gozk.FlagContainer, acl)
		if !unimplemented(err) {
			return err
		}
		s.b.plain.Store(true)
		s.b.opts.Logger.Warn("dlock: zookeeper: the server has no container nodes: the nodes of locks stay")
	}
	_, err := s.conn.Create(dir, nil, gozk.FlagPersistent, acl)
	return err
}
