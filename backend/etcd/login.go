package etcd

import (
	"context"
	"errors"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/dlock-go/dlock/backend"
)

// A login puts a token into every request, and asks for a new one when the server does
// not know the old one any more. The client library sends the old token along when it
// asks for a new one, which etcd 3.4 refuses, and asks again for every stream.
type login struct {
	credentials func(context.Context) (user, password string, err error)
	state       chan loginState // holds one; empty while a token is asked for
}

type loginState struct {
	asked bool
	token string // empty where the server does not want any
}

func newLogin(credentials func(context.Context) (user, password string, err error)) *login {
	l := &login{credentials: credentials, state: make(chan loginState, 1)}
	l.state <- loginState{}
	return l
}

func (l *login) options() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithChainUnaryInterceptor(l.unary), grpc.WithChainStreamInterceptor(l.stream)}
}

// unary repeats a request whose token was refused: it was not carried out.
func (l *login) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if method == pb.Auth_Authenticate_FullMethodName {
		return invoke(ctx, method, req, reply, cc, opts...)
	}
	token, err := l.token(ctx, cc)
	if err != nil {
		return err
	}
	err = invoke(withToken(ctx, token), method, req, reply, cc, opts...)
	if !isTokenRefused(err) {
		return err
	}
	l.forget(token)
	if token, err = l.token(ctx, cc); err != nil {
		return err
	}
	return invoke(withToken(ctx, token), method, req, reply, cc, opts...)
}

func (l *login) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	token, err := l.token(ctx, cc)
	if err != nil {
		return nil, err
	}
	s, err := open(withToken(ctx, token), desc, cc, method, opts...)
	if err != nil {
		return nil, err
	}
	return &loginStream{s, l, token}, nil
}

// A loginStream forgets its token if the server refuses it: the next stream asks for
// another.
type loginStream struct {
	grpc.ClientStream
	login *login
	token string
}

func (s *loginStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if isTokenRefused(err) {
		s.login.forget(s.token)
	}
	return err
}

// token returns the token to use, and asks for one if there is none.
func (l *login) token(ctx context.Context, cc *grpc.ClientConn) (string, error) {
	select {
	case s := <-l.state:
		err := error(nil)
		if !s.asked {
			s.token, err = l.ask(ctx, cc)
			s.asked = err == nil
		}
		l.state <- s
		return s.token, err
	case <-ctx.Done():
		return "", backend.Cause(ctx)
	}
}

// ask has a timeout of its own: the context of a stream has none, and everybody else
// waits for the answer.
func (l *login) ask(ctx context.Context, cc *grpc.ClientConn) (string, error) {
	ctx, cancel := backend.Bound(ctx, backend.FirstAnswer)
	defer cancel()
	user, password, err := l.credentials(ctx)
	if err != nil {
		return "", err
	}
	reply, err := pb.NewAuthClient(cc).Authenticate(ctx, &pb.AuthenticateRequest{Name: user, Password: password})
	if errors.Is(rpctypes.Error(err), rpctypes.ErrAuthNotEnabled) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return reply.Token, nil
}

// forget drops token, unless it has been replaced already.
func (l *login) forget(token string) {
	s := <-l.state
	if s.token == token {
		s = loginState{}
	}
	l.state <- s
}

func withToken(ctx context.Context, token string) context.Context {
	if token == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, rpctypes.TokenFieldNameGRPC, token)
}

func isTokenRefused(err error) bool {
	if err == nil {
		return false
	}
	err = rpctypes.Error(err)
	return errors.Is(err, rpctypes.ErrInvalidAuthToken) || errors.Is(err, rpctypes.ErrAuthOldRevision) || errors.Is(err, rpctypes.ErrUserEmpty)
}
