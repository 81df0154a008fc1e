package etcd

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"sync/atomic"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dlock-go/dlock/backend"
)

var (
	errRevoked        = errors.New("the etcd lease was revoked or has expired")
	errKeyDeleted     = errors.New("the lock's key was deleted")
	errNotRenewed     = errors.New("the etcd lease was not renewed in time")
	errNoSession      = errors.New("the etcd lease ended before the lock was granted")
	errLags           = errors.New("the member does not know the request yet")
	errNoAnswer       = errors.New("the etcd lease ended before the release was answered")
	errWatchEnded     = errors.New("the watch has ended")
	errNoLeader       = errors.New("the member knows no leader")
	errUnknownOutcome = errors.New("it is not known yet what became of the request")
)

// fail gives err its kind.
func fail(err error) error {
	var known rpctypes.EtcdError
	code := status.Code(err)
	if errors.As(err, &known) {
		code = known.Code()
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		return backend.Fail(backend.ErrLost, err)
	case code == codes.PermissionDenied, code == codes.Unauthenticated,
		errors.Is(err, rpctypes.ErrAuthFailed), errors.Is(err, rpctypes.ErrUserEmpty):
		return backend.Fail(backend.ErrAuth, err)
	}
	return backend.Fail(backend.ErrUnavailable, err)
}

// A lastFailure is why there was no connection to a member, if none has answered since. The
// client library waits for one until the request's time is over, and then says that alone.
type lastFailure struct{ reason atomic.Pointer[string] }

// described is what gRPC writes before the reason, which it quotes.
const described = `desc = "`

// unary notes what becomes of a request. One for a member's status says nothing of others:
// a member that is down is asked for it too.
func (l *lastFailure) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	err := invoke(ctx, method, req, reply, cc, opts...)
	s := status.Convert(err)
	_, reason, found := strings.Cut(s.Message(), described)
	switch code := s.Code(); {
	case method == pb.Maintenance_Status_FullMethodName:
	case found:
		reason = strings.TrimSuffix(reason, `"`)
		l.reason.Store(&reason)
	case code != codes.DeadlineExceeded && code != codes.Canceled: // an answer
		l.reason.Store(nil)
	}
	return err
}

// at adds to an error that is ErrUnavailable which members were tried, and why there is no
// connection, if that is known.
func (b *Backend) at(err error) error {
	if err == nil {
		return nil
	}
	var members []string
	for _, endpoint := range b.members.endpoints {
		members = append(members, hostOf(endpoint))
	}
	err = backend.At(members, err)
	if reason := b.failure.reason.Load(); reason != nil && !strings.Contains(err.Error(), *reason) {
		err = backend.Because(err, errors.New(*reason))
	}
	return err
}

// hostOf returns an endpoint without a password.
func hostOf(endpoint string) string {
	if u, err := url.Parse(endpoint); err == nil && u.Host != "" {
		return u.Host
	}
	return endpoint
}

// isRefused reports that the server has certainly not carried out the request. Lack of
// space proves nothing: a server may say so after it has carried out the request.
func isRefused(err error) bool {
	return errors.Is(err, backend.ErrLost) || errors.Is(err, backend.ErrAuth)
}

// unavailable returns err as the error of a call that never had a useful answer. A
// session that ended on the way is no lost lock. The context of the call is not done: its
// cause might be the loss of another lock.
func unavailable(err error) error {
	if errors.Is(err, backend.ErrLost) {
		return backend.Fail(backend.ErrUnavailable, errNoSession)
	}
	return err
}

// fail gives err its kind, and ends the session if it says that the lease is gone.
func (s *session) fail(err error) error {
	err = fail(err)
	if errors.Is(err, backend.ErrLost) {
		s.end(err)
	}
	return err
}
