package zk

import (
	"errors"
	"slices"
)

// maxSessionBytes is how many bytes the nodes of one session take up, by pathBound. When a
// session ends, one transaction has the paths of all its nodes. A server reads back at a
// restart no transaction of more than 2 MiB (twice jute.maxbuffer): it would never start
// again. The bound leaves room for a server that allows less.
const maxSessionBytes = 512 << 10

// pathBound is what a request for the lock at dir takes up in the transaction: its node, and
// its announcement in a long queue, whose path may be as long once more if the root's is.
func pathBound(dir string) int { return len(dir) + guidLength + 64 }

// errUnused is the end of a session that no request uses any more.
var errUnused = errors.New("the session holds nothing any more")

// session returns a session with room for size bytes, which it reserves: the newest one that
// is open, for so the older ones become empty. It begins another if none has room.
func (b *Backend) session(size int) (*session, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.calls.Err(); err != nil {
		return nil, err
	}
	b.sessions = slices.DeleteFunc(b.sessions, func(s *session) bool { return s.ctx.Err() != nil })
	var found *session
	for _, s := range slices.Backward(b.sessions) {
		if s.reserved+size > maxSessionBytes {
			continue
		}
		if isClosed(s.ready) { // the server may allow no further connection
			found = s
			break
		}
		if found == nil {
			found = s
		}
	}
	if found == nil {
		found = newSession(b)
		b.sessions = append(b.sessions, found)
		b.janitor.Go(found.run)
	}
	found.reserved += size
	return found, nil
}

// reserve takes room in s, whether it has that or not.
func (b *Backend) reserve(s *session, size int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s.reserved += size
}

// unreserve gives back room in s. If that holds nothing any more it ends, unless it is the
// newest, for the next request.
func (b *Backend) unreserve(s *session, size int) {
	b.mu.Lock()
	s.reserved -= size
	i := slices.Index(b.sessions, s)
	unused := s.reserved == 0 && 0 <= i && i < len(b.sessions)-1
	if unused {
		b.sessions = slices.Delete(b.sessions, i, i+1)
	}
	b.mu.Unlock()
	if unused {
		s.end(errUnused)
	}
}
