package conformance

import (
	"context"
	"sync"
	"time"
)

// rwReadersAlone has readers come and go near the server, and one try to read from
// afar: no writer is anywhere, so it is never told that the lock is held.
func rwReadersAlone(s *scenario) {
	s.needs(Readers)
	const near, away, tries = 4, 4 * time.Millisecond, 20
	distant := s.open()
	if s.unable(distant.Delay == nil, "Delay") {
		return
	}
	s.unlock(s.rlocked(distant.RWMutex(s.name))) // connects
	ctx, cancel := context.WithCancel(s.ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	for _, p := range s.opens(near) {
		m := p.RWMutex(s.name)
		all.Go(func() {
			for ctx.Err() == nil {
				lease, err := m.RLock(s.ctx)
				if err != nil {
					s.Error(err)
					return
				}
				time.Sleep(time.Millisecond)
				if err := lease.Unlock(s.ctx); err != nil {
					s.Error(err)
				}
			}
		})
	}
	distant.Delay(away)
	defer distant.Delay(0)
	for range tries {
		lease, err := distant.RWMutex(s.name).TryRLock(s.ctx)
		s.ok(err)
		s.unlock(lease)
	}
}
