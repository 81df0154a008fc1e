package etcd

import (
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// SetCheckEvery sets how often a waiter of b checks that it still waits for the right key.
// It comes before the first use of b.
func SetCheckEvery(b *Backend, d time.Duration) { b.checkEvery = d }

// MaxStreams is the greatest number of a client's streams of watches.
const MaxStreams = maxStreams

// Lease is that of b's one session, and its age.
func Lease(b *Backend) (clientv3.LeaseID, time.Duration) {
	s := b.oneSession()
	if s == nil {
		return clientv3.NoLease, 0
	}
	return s.lease, s.age()
}

// SetLeft has d be left of the lease of b's one session, as if it had not been renewed.
func SetLeft(b *Backend, d time.Duration) {
	s := b.oneSession()
	left := s.left()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = s.sent.Add(d - left)
}

func (b *Backend) oneSession() *session {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, g := range b.groups {
		for _, s := range g.sessions {
			return s
		}
	}
	return nil
}
