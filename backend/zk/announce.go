package zk

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	gozk "github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/backend"
)

// manyChildren is how many children a list may have that takes the server less than an
// announcement does.
const manyChildren = 256

// maxAnnouncementWait bounds the pauses between the looks for an announcement.
const maxAnnouncementWait = 50 * time.Millisecond

// announcementPauses are the pauses before each look for an announcement, after a create
// that took so long. Whoever is to make it may have joined at about the same time, and wait
// for the same server. But it may never come, and the lock may be free before the last look:
// so all of them together are no longer than the create took.
func announcementPauses(took time.Duration) []time.Duration {
	p := min(took, maxAnnouncementWait) / 7
	return []time.Duration{0, p, 2 * p, 4 * p}
}

// findFirstPredecessors sets the predecessors of n right after the create. If there are
// many children it does without a list of them, where it can.
//
// The version of the lock's node counts those who have joined. Each announces its node
// under the version that it got, so that the next finds it: nobody has joined in between.
// That the announced node is gone or goes proves nothing: then n lists after all.
func (n *node) findFirstPredecessors() error {
	if n.dirStat == nil || n.dirStat.NumChildren <= n.session.backend.manyChildren {
		return n.findPredecessors()
	}
	pauses := announcementPauses(time.Since(n.sent))
	if n.mode == backend.Exclusive {
		n.announce(n.name)
	} else {
		pauses = pauses[:1] // a reader that holds the lock announces nothing
	}
	if !n.findAnnounced(pauses) {
		if err := n.findPredecessors(); err != nil {
			return err
		}
	}
	if n.mode == backend.Shared && n.predecessors.count > 0 {
		n.announce(n.name + " " + n.predecessors.last.name)
	}
	return nil
}

// announcementPath is the path of an announcement under a version of the lock's node.
func (n *node) announcementPath(version int32) string {
	return fmt.Sprintf("%s/%x-%d", n.session.placeholder(), n.dirStat.Czxid, version)
}

// announce makes an announcement of n: its name, and that of the writer that a reader waits
// for. If it fails, whoever comes next lists.
func (n *node) announce(text string) {
	s := n.session
	n.announcement = n.announcementPath(n.dirStat.Version)
	create := func() error {
		_, err := s.client.Create(n.announcement, []byte(text), gozk.FlagEphemeral, s.backend.opts.ACL)
		return err
	}
	if err := s.retry(create); errors.Is(err, gozk.ErrNoNode) && s.createPlaceholder() == nil {
		_ = s.retry(create)
	}
}

// findAnnounced looks for the announcement before that of n, and reports whether it has
// set the predecessors.
func (n *node) findAnnounced(pauses []time.Duration) bool {
	s := n.session
	for _, pause := range pauses {
		if pause > 0 && !backend.Sleep(s.ctx, pause) {
			return false
		}
		var text []byte
		err := s.retry(func() (err error) {
			text, _, err = s.client.Get(n.announcementPath(n.dirStat.Version - 1))
			return err
		})
		if err == nil {
			return n.followAnnouncement(string(text))
		}
		if !errors.Is(err, gozk.ErrNoNode) {
			return false
		}
	}
	return false
}

func (n *node) followAnnouncement(text string) bool {
	name, writer, _ := strings.Cut(text, " ")
	if n.mode == backend.Shared && writer != "" {
		name = writer
	}
	last, ok := parsePosition(name)
	if !ok || !last.conflictsWith(n.mode) {
		return false
	}
	n.predecessors = predecessors{count: 2, last: last} // or more: that last is deleted proves nothing
	return true
}

// withdraw deletes the announcement of n in the background, if there is one.
func (n *node) withdraw() {
	if s := n.session; n.announcement != "" {
		s.backend.janitor.Go(func(context.Context) {
			_ = s.retry(func() error { return s.client.Delete(n.announcement, -1) })
		})
	}
}
