package etcd_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/server"
)

// guarded starts a server with users root and app, of whom app may use the
// keys below the test's prefix and nothing else. It returns a client of root.
func guarded(t testing.TB, args ...string) (*server.Server, *clientv3.Client) {
	t.Helper()
	k := kind()
	k.Args = slices.Concat(k.Args, []string{"--bcrypt-cost=4"}, args)
	s := server.Start(t, k)
	c, ctx := raw(t, s.Addr()), timed(t)
	for user, role := range map[string]string{"root": "root", "app": "locker"} {
		_, err := c.RoleAdd(ctx, role)
		must(t, err)
		_, err = c.UserAdd(ctx, user, "pass/of/"+user)
		must(t, err)
		_, err = c.UserGrantRole(ctx, user, role)
		must(t, err)
	}
	from := prefix(t) + "/"
	_, err := c.RoleGrantPermission(ctx, "locker", from, clientv3.GetPrefixRangeEnd(from), clientv3.PermissionType(clientv3.PermReadWrite))
	must(t, err)
	_, err = c.AuthEnable(ctx)
	must(t, err)
	root, err := clientv3.New(clientv3.Config{Endpoints: []string{s.Addr()}, Username: "root", Password: "pass/of/root", Logger: zap.NewNop()})
	must(t, err)
	t.Cleanup(func() { root.Close() })
	return s, root
}

func as(t testing.TB, user, password, addr string) string {
	return "etcd://" + user + ":" + url.QueryEscape(password) + "@" + addr + "/" + prefix(t)
}

func TestWrongCredentials(t *testing.T) {
	t.Parallel()
	s, _ := guarded(t)
	for name, login := range map[string]string{
		"password": as(t, "app", "secret-guess", s.Addr()),
		"user":     as(t, "nobody", "secret-guess", s.Addr()),
		"none":     "etcd://" + s.Addr() + "/" + prefix(t),
		"prefix":   strings.Replace(as(t, "app", "pass/of/app", s.Addr()), prefix(t), "other", 1),
	} {
		_, err := dlock.Open(timed(t), login, nil)
		is(t, err, dlock.ErrAuth)
		if strings.Contains(err.Error(), "secret-guess") || strings.Contains(err.Error(), "pass/of") {
			t.Errorf("%s: the error shows the password", name)
		}
	}
}

// TestRoleOnPrefix does all that a client does with the rights of the prefix
// alone, until they are revoked.
func TestRoleOnPrefix(t *testing.T) {
	t.Parallel()
	s, root := guarded(t)
	var clients []*dlock.Client
	p := proxied(t, s.Addr())
	for _, addr := range []string{p.Addr(), s.Addr()} {
		c, err := dlock.Open(timed(t), as(t, "app", "pass/of/app", addr), &dlock.Options{TTL: keptTTL})
		must(t, err)
		defer c.Close(timed(t))
		clients = append(clients, c)
	}
	a, b := clients[0].RWMutex("a"), clients[1].RWMutex("a")
	lease := locked(t, a)
	_, err := b.TryRLock(timed(t))
	is(t, err, dlock.ErrHeld)
	reader := start(t, timed(t), b.RLock)
	queued(t, root, 2)
	before := p.Stats().Requests
	eventually(t, "renewals need no rights that the role lacks", func() bool {
		must(t, lease.Err())
		now := p.Stats()
		return now.Requests >= before+4 && now.Owed == 0 // two times the lease and the key
	})
	must(t, lease.Downgrade(timed(t)))
	must(t, reader.granted().Unlock(timed(t)))
	must(t, lease.Unlock(timed(t)))

	lease = locked(t, a)
	waiter := start(t, timed(t), b.Lock)
	queued(t, root, 2)
	_, err = root.UserRevokeRole(timed(t), "app", "locker")
	must(t, err)
	_, err = clients[0].Mutex("b").TryLock(timed(t))
	is(t, err, dlock.ErrAuth)
	is(t, lease.Unlock(timed(t)), dlock.ErrAuth)
	_, err = root.UserGrantRole(timed(t), "app", "locker")
	must(t, err)
	within(t, "granted or refused", waiter.done)
	if waiter.err != nil {
		is(t, waiter.err, dlock.ErrAuth)
	} else {
		must(t, waiter.lease.Unlock(timed(t)))
	}
	queued(t, root, 0)
}

// TestCredentialsRotate asks for the password again when the server has
// forgotten the login, because the password was changed or it was restarted.
func TestCredentialsRotate(t *testing.T) {
	t.Parallel()
	s, root := guarded(t)
	var password atomic.Value
	password.Store("pass/of/app")
	credentials := func(context.Context) (string, string, error) { return "app", password.Load().(string), nil }
	c, err := dlock.Open(timed(t), "etcd://"+s.Addr()+"/"+prefix(t), &dlock.Options{Credentials: credentials, TTL: 10 * time.Second})
	must(t, err)
	defer c.Close(timed(t))
	must(t, locked(t, c.Mutex("a")).Unlock(timed(t)))
	_, err = root.UserChangePassword(timed(t), "app", "new")
	must(t, err)
	password.Store("new")
	must(t, locked(t, c.Mutex("a")).Unlock(timed(t)))
	must(t, s.Kill())
	must(t, s.Restart(true))
	recovers(t, c.Mutex("a"))
}

// TestLoginForgottenWhileWatching has the server forget the login of a client that
// holds and watches. Waiting costs what it cost before: a request to join, one to
// watch, and none while nothing happens.
func TestLoginForgottenWhileWatching(t *testing.T) {
	t.Parallel()
	for name, forget := range map[string]struct {
		args []string
		do   func(t *testing.T, root *clientv3.Client)
	}{
		"password set":         {nil, setPassword},
		"token expired":        {[]string{"--auth-token-ttl=1"}, outlast},
		"password set, JWT":    {[]string{jwt(t, time.Hour)}, setPassword},
		"token expired as JWT": {[]string{jwt(t, 2*time.Second)}, outlast},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, root := guarded(t, forget.args...)
			p := proxied(t, s.Addr())
			open := func(addr string) *dlock.Client {
				c, err := dlock.Open(timed(t), as(t, "app", "pass/of/app", addr), &dlock.Options{TTL: time.Minute})
				must(t, err)
				t.Cleanup(func() { c.Close(timed(t)) })
				return c
			}
			holder, waiter := open(s.Addr()), open(p.Addr())
			kept := locked(t, waiter.Mutex("kept"))
			pass := func(lock string) {
				lease := locked(t, holder.Mutex(lock))
				call := start(t, timed(t), waiter.Mutex(lock).Lock)
				queued(t, root, 3)
				must(t, lease.Unlock(timed(t)))
				must(t, call.granted().Unlock(timed(t)))
			}
			pass("before") // on a stream that stays open
			forget.do(t, root)
			pass("after")

			lease := locked(t, holder.Mutex("counted"))
			before := p.Stats().Requests
			call := start(t, timed(t), waiter.Mutex("counted").Lock)
			queued(t, root, 3)
			time.Sleep(2 * time.Second)
			if n := p.Stats().Requests - before; n > 6 {
				t.Errorf("a waiter sent %d requests in two seconds", n)
			}
			must(t, lease.Unlock(timed(t)))
			must(t, call.granted().Unlock(timed(t)))
			must(t, kept.Unlock(timed(t)))
		})
	}
}

func setPassword(t *testing.T, root *clientv3.Client) {
	_, err := root.UserChangePassword(timed(t), "app", "pass/of/app")
	must(t, err)
}

// outlast waits for tokens to run out: the server's own clock decides, and nothing
// tells.
func outlast(*testing.T, *clientv3.Client) { time.Sleep(3 * time.Second) }

// jwt is the flag for signed tokens that last for ttl.
func jwt(t testing.TB, ttl time.Duration) string {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	secret, err := x509.MarshalECPrivateKey(private)
	must(t, err)
	public, err := x509.MarshalPKIXPublicKey(private.Public())
	must(t, err)
	dir := t.TempDir()
	for name, block := range map[string]*pem.Block{
		"private": {Type: "EC PRIVATE KEY", Bytes: secret}, "public": {Type: "PUBLIC KEY", Bytes: public},
	} {
		must(t, os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600))
	}
	return fmt.Sprintf("--auth-token=jwt,pub-key=%s/public,priv-key=%s/private,sign-method=ES256,ttl=%v", dir, dir, ttl)
}

// TestCredentialsHang asks for credentials that never come, until the question is
// over. Then they come again.
func TestCredentialsHang(t *testing.T) {
	t.Parallel()
	s, root := guarded(t)
	p := proxied(t, s.Addr())
	var hangs, asked atomic.Bool
	c, err := dlock.Open(timed(t), "etcd://"+p.Addr()+"/"+prefix(t), &dlock.Options{
		TTL: 10 * time.Minute,
		Credentials: func(ctx context.Context) (string, string, error) {
			if hangs.Load() {
				asked.Store(true)
				<-ctx.Done()
				return "", "", context.Cause(ctx)
			}
			return "app", "pass/of/app", nil
		},
	})
	must(t, err)
	defer c.Close(timed(t))
	must(t, locked(t, c.Mutex("a")).Unlock(timed(t)))

	hangs.Store(true)
	_, err = root.UserChangePassword(timed(t), "app", "pass/of/app") // the server forgets its token
	must(t, err)
	ctx, cancel := context.WithCancel(timed(t))
	waiter := start(t, ctx, c.Mutex("a").Lock)
	eventually(t, "a lock asks for credentials", asked.Load)
	cancel()
	<-waiter.done
	asked.Store(false)
	p.Reset()
	eventually(t, "a watch that was broken off asks for credentials", asked.Load)
	hangs.Store(false)
	recovers(t, c.Mutex("a"))
}

// TestTLS goes through an end of TLS that wants a client's certificate.
func TestTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ca, cert, key := filepath.Join(dir, "ca"), filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	addr := tlsFront(t, shared.Addr(), cert, key)
	must(t, os.Link(cert, ca))
	host := strings.Replace(addr, "127.0.0.1", "localhost", 1)
	c, err := dlock.Open(timed(t), "etcds://"+host+"/"+prefix(t)+"?ca="+ca+"&cert="+cert+"&key="+key, nil)
	must(t, err)
	must(t, locked(t, c.Mutex("a")).Unlock(timed(t)))
	must(t, c.Close(timed(t)))
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, err = dlock.Open(ctx, "etcds://"+host+"?ca="+ca, nil)
	is(t, err, dlock.ErrUnavailable)
	_, err = dlock.Open(timed(t), "etcd://"+host+"?ca="+ca, nil)
	is(t, err, dlock.ErrInvalidConfig)
	_, err = dlock.Open(timed(t), "etcds://"+host+"?ca="+key, nil)
	is(t, err, dlock.ErrInvalidConfig)
}

// tlsFront listens with a new certificate, which it writes to files and which
// is also its authority, and forwards to addr.
func tlsFront(t *testing.T, addr, certFile, keyFile string) string {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	must(t, os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	must(t, os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	must(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(pair.Leaf)
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert, NextProtos: []string{"h2"},
	})
	must(t, err)
	t.Cleanup(func() { l.Close() })
	go forward(l, addr)
	return l.Addr().String()
}

func forward(l net.Listener, addr string) {
	for {
		in, err := l.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", addr)
		if err != nil {
			in.Close()
			continue
		}
		go func() { io.Copy(out, in); out.Close() }()
		go func() { io.Copy(in, out); in.Close() }()
	}
}
