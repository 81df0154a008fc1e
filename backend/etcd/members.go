package etcd

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dlock-go/dlock/backend"
)

// A memberCheck finds the members that are silent. gRPC gives requests to one member after
// another, and goes on giving them to one that has fallen silent until its connection is
// given up, 13 seconds later with the settings of an URL. A request that is sent again may
// meet the same member each time. So after a request without an answer each member is
// asked for its status, and the client uses those alone that answer, until all do.
//
// A client that the user has made is left as it is.
type memberCheck struct {
	endpoints []string // all members, as the client was given them

	mu      sync.Mutex
	running bool
}

// start begins to check the members, unless that is under way.
func (m *memberCheck) start(b *Backend) {
	if !b.owned || len(m.endpoints) < 2 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.running {
		m.running = b.janitor.Go(func(context.Context) { m.run(b) })
	}
}

// run checks the members until each of them answers, or the backend is closed.
func (m *memberCheck) run(b *Backend) {
	pause := backend.Backoff{Min: 500 * time.Millisecond, Max: 5 * time.Second}
	for {
		answering := m.answering(b)
		if len(answering) > 0 && !slices.Equal(answering, b.client.Endpoints()) {
			b.client.SetEndpoints(answering...)
		}
		if len(answering) == len(m.endpoints) || !backend.Sleep(b.ctx, pause.Next()) {
			break
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.running = false
}

// answering returns the members that say that they are there. Where one knows a leader,
// those that know none are not counted: they are cut off from the others.
func (m *memberCheck) answering(b *Backend) []string {
	ctx, cancel := context.WithTimeout(b.ctx, b.statusTimeout())
	defer cancel()
	statuses, errs := b.statuses(ctx)
	led := slices.ContainsFunc(statuses, hasLeader)
	var out []string
	for i, endpoint := range m.endpoints {
		refused := errs[i] != nil && !isSilent(errs[i]) // which is an answer
		if refused || errs[i] == nil && (!led || hasLeader(statuses[i])) {
			out = append(out, endpoint)
		}
	}
	return out
}

// statuses asks each member that the client was given for its status.
func (b *Backend) statuses(ctx context.Context) ([]*pb.StatusResponse, []error) {
	endpoints := b.members.endpoints
	statuses, errs := make([]*pb.StatusResponse, len(endpoints)), make([]error, len(endpoints))
	var all sync.WaitGroup
	for i, endpoint := range endpoints {
		all.Go(func() {
			status, err := b.client.Status(ctx, endpoint)
			statuses[i], errs[i] = (*pb.StatusResponse)(status), err
		})
	}
	all.Wait()
	return statuses, errs
}

// statusTimeout is how long a member may take to say that it is there: a connection is
// made for that, with four round trips where it is encrypted.
func (b *Backend) statusTimeout() time.Duration {
	if b.lastAnswer.Load() == 0 {
		return minTimeout
	}
	return 4 * b.roundTrip.Limit(minTimeout/4, maxTimeout)
}

func hasLeader(s *pb.StatusResponse) bool { return s.GetLeader() != 0 }

// isSilent reports whether err says that a member has not answered.
func isSilent(err error) bool {
	code := status.Code(err)
	return errors.Is(err, context.DeadlineExceeded) || code == codes.DeadlineExceeded || code == codes.Canceled || code == codes.Unavailable
}
