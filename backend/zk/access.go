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

// placeholder is a child of the root that stays. If the root were empty, and its parent
// open to everybody as / is, anybody could delete the root and create it as their own.
// Names of locks do not begin with a dot.
const placeholder = ".dlock"

func (s *session) placeholder() string { return s.backend.opts.Root + "/" + placeholder }

// changePerms are the permissions that let somebody take a lock away.
const changePerms = gozk.PermWrite | gozk.PermCreate | gozk.PermDelete | gozk.PermAdmin

// allowsEverybody reports whether everybody who reaches the server may change a node
// with that ACL.
func allowsEverybody(acl []gozk.ACL) bool {
	return slices.ContainsFunc(acl, func(a gozk.ACL) bool { return a.Scheme == "world" && a.Perms&changePerms != 0 })
}

// allowsStrangers reports whether others than those in own may change a node with that
// ACL. Other users are no strangers: an operator has added them.
func allowsStrangers(acl, own []gozk.ACL) bool {
	return slices.ContainsFunc(acl, func(a gozk.ACL) bool {
		return (a.Scheme == "world" || a.Scheme == "ip") && a.Perms&changePerms != 0 && !slices.Contains(own, a)
	})
}

// maxCheckedACLs is how many nodes a session remembers whose ACLs it has checked.
const maxCheckedACLs = 4096

// checkAccess makes sure that strangers may not change dir, whoever has created it.
func (s *session) checkAccess(dir string) error {
	s.mu.Lock()
	checked := s.checkedACLs[dir]
	s.mu.Unlock()
	if checked || allowsEverybody(s.backend.opts.ACL) {
		return nil
	}
	var acl []gozk.ACL
	err := s.retry(func() (err error) {
		acl, _, err = s.client.GetACL(dir)
		return err
	})
	if err != nil {
		return err
	}
	if allowsStrangers(acl, s.backend.opts.ACL) {
		return backend.Fail(backend.ErrConflict, fmt.Errorf("everybody may change the node %s", dir))
	}
	s.setAccessChecked(dir)
	return nil
}

func (s *session) setAccessChecked(dir string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.checkedACLs) >= maxCheckedACLs {
		clear(s.checkedACLs)
	}
	s.checkedACLs[dir] = true
}

// prepareRoot checks the root when a client connects. With an ACL that is closed to
// strangers it creates the root, before a stranger does, and the placeholder.
func (s *session) prepareRoot() error {
	root := s.backend.opts.Root
	if allowsEverybody(s.backend.opts.ACL) {
		return s.retry(func() error { _, _, err := s.client.Get(root); return err })
	}
	err := s.checkAccess(root)
	if errors.Is(err, gozk.ErrNoNode) {
		if created, err := s.ensureDir(root); created || err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	return s.createPlaceholder()
}

func (s *session) createPlaceholder() error {
	err := s.retry(func() error {
		_, err := s.client.Create(s.placeholder(), nil, gozk.FlagPersistent, s.backend.opts.ACL)
		return err
	})
	if errors.Is(err, gozk.ErrNodeExists) {
		return nil
	}
	return err
}

// ensureDir creates a lock's node, or the root, and the nodes above it. It reports
// whether the node did not exist before.
func (s *session) ensureDir(dir string) (created bool, err error) {
	for {
		err := s.retry(func() error { return s.createDir(dir) })
		switch {
		case err == nil:
			s.setAccessChecked(dir)
			return true, nil
		case errors.Is(err, gozk.ErrNodeExists) && !strings.HasPrefix(dir+"/", s.backend.opts.Root+"/"):
			return false, nil // it belongs to somebody else
		case errors.Is(err, gozk.ErrNodeExists):
			return false, ignoreNoNode(s.checkAccess(dir)) // if it was just deleted, the next request finds out
		case !errors.Is(err, gozk.ErrNoNode) || path.Dir(dir) == "/":
			return false, err
		}
		if _, err := s.ensureDir(path.Dir(dir)); err != nil {
			return false, err
		}
	}
}

// createDir creates a node that stays, or for a lock a container, which the server
// deletes some time after its last child.
func (s *session) createDir(dir string) error {
	acl := s.backend.opts.ACL
	node := &gozk.CreateRequest{Path: dir, Acl: acl, Flags: gozk.FlagPersistent}
	switch {
	case dir == s.backend.opts.Root:
		_, err := s.client.Multi(node, &gozk.CreateRequest{Path: s.placeholder(), Acl: acl, Flags: gozk.FlagPersistent})
		return err
	case path.Dir(dir) == s.backend.opts.Root && !s.backend.noContainers.Load():
		err := s.createContainer(dir, acl)
		if !isUnimplemented(err) {
			return err
		}
		s.backend.noContainers.Store(true)
		s.backend.opts.Logger.Warn("dlock: zookeeper: the server has no container nodes: the nodes of locks stay")
	}
	_, err := s.client.Create(dir, nil, gozk.FlagPersistent, acl)
	return err
}
