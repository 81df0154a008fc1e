package natsbackend

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/conformance"
)

func TestMain(m *testing.M) { os.Exit(conformance.Main(m)) }

// notApplicable is what this backend cannot have: it promises nothing of a bucket
// that was deleted, is no part of a quorum, and does not tell who holds a lock.
var notApplicable = []string{
	"Break/Holder", "Break/InUse", "Break/Races", "Crash/MinHold", "Inspect/Holder", "Inspect/InUse", "Inspect/LeavesNothing", "Inspect/Lost",
	"Inspect/Names", "Inspect/NoSecrets", "Inspect/OnlyReads", "Inspect/Readers", "Inspect/Waiters", "Ping/Answers",
	"Register/Known", "Register/Proposal", "Register/Queue", "Register/Raise", "Register/Rejoin", "Token/GrowsAcrossDataLoss",
}

func TestConformance(t *testing.T) {
	report := conformance.Run(t, harness(t))
	fmt.Println(report)
	everything := report.Passed+len(report.NotApplicable) == report.Total
	if everything && !slices.Equal(report.NotApplicable, notApplicable) {
		t.Errorf("not applicable are %v, want %v", report.NotApplicable, notApplicable)
	}
}

func TestSeeds(t *testing.T) { conformance.TestSeeds(t, harness(t)) }

const login = "dlock:secret@"

// A natsServer is the server under test, with a connection to look at it.
type natsServer struct {
	options *server.Options
	server  *server.Server
	admin   *nats.Conn
	kv      jetstream.KeyValue

	mu    sync.Mutex
	peers []*nats.Conn
}

func harness(t *testing.T) conformance.Harness {
	s := &natsServer{options: &server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(),
		Username: "dlock", Password: "secret", NoLog: true, NoSigs: true,
	}}
	s.start(t)
	t.Cleanup(func() { s.stop() })
	ctx := context.Background()
	addr := s.server.Addr().String()
	var err error
	s.admin, err = nats.Connect("nats://"+login+addr, nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond))
	must(t, err)
	t.Cleanup(s.admin.Close)
	s.kv, err = bucket(ctx, s.admin, nil)
	must(t, err)
	return conformance.Harness{
		Name: "nats", Version: server.VERSION, Scheme: "nats",
		URL:      "nats://" + login + addr,
		BadLogin: "nats://dlock:wrong@" + addr,
		Nowhere:  "nats://127.0.0.1:1",
		Leased:   true,
		Durable:  true,
		Open:     s.open,
		Evict:    s.evict,
		Ops:      s.ops,
		Conns:    func() int { return s.server.NumClients() - 1 },
		Waiting:  func(t testing.TB, name string) int { return len(s.state(t, key(name)).Queue) },
		Residue:  s.residue,
		Foreign:  s.foreign,
		Restart:  func(t testing.TB) { s.stop(); s.start(t); s.answers(t) },
		Borrow:   s.borrow,
		Optional: []string{"Downgrader", "Renewer", "Transferer"},
	}
}

func (s *natsServer) start(t testing.TB) {
	var err error
	s.server, err = server.NewServer(s.options)
	must(t, err)
	s.server.Start()
	if !s.server.ReadyForConnections(20 * time.Second) {
		t.Fatal("the server does not start")
	}
	s.options.Port = s.server.Addr().(*net.TCPAddr).Port // to come back to it
}

func (s *natsServer) stop() {
	s.server.Shutdown()
	s.server.WaitForShutdown()
}

// answers waits until the operator's connection is back.
func (s *natsServer) answers(t testing.TB) {
	for end := time.Now().Add(20 * time.Second); ; {
		_, err := s.kv.Status(context.Background())
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// open returns a client behind a proxy of its own.
func (s *natsServer) open(t testing.TB, o dlock.Options) *conformance.Peer {
	proxy := conformance.NewProxy(t, s.server.Addr().String(), nil)
	u, err := backend.ParseURL("nats://" + login + proxy.Addr())
	must(t, err)
	b, err := backend.Open(context.Background(), backend.Config{URL: u, TTL: o.TTL})
	must(t, err)
	c, err := dlock.New(b, &o)
	must(t, err)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.peers = append(s.peers, b.(*Backend).nc)
	peer := &conformance.Peer{Client: c, Backend: b}
	proxy.Disturb(peer)
	peer.DropReply = func() { // to a write
		proxy.DropReplyTo(func(request []byte) bool { return bytes.Contains(request, []byte("PUB $KV.")) })
	}
	return peer
}

func (s *natsServer) ops() (n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, nc := range s.peers {
		n += int64(nc.Stats().OutMsgs)
	}
	return n
}

func (s *natsServer) get(t testing.TB, key string) (value []byte, revision uint64) {
	e, err := s.kv.Get(context.Background(), key)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil, 0
	}
	must(t, err)
	return e.Value(), e.Revision()
}

func (s *natsServer) state(t testing.TB, key string) *state {
	value, _ := s.get(t, key)
	st, err := decode(value)
	must(t, err)
	return st
}

// evict takes the holders out of the lock's value, and lets in who is next.
func (s *natsServer) evict(t testing.TB, name string) {
	for {
		value, revision := s.get(t, key(name))
		st, err := decode(value)
		must(t, err)
		out := st.Holders
		st.remove(func(e entry) bool { return find(out, e.ID) != nil })
		_, err = s.kv.Update(context.Background(), key(name), st.encode(), revision)
		if err == nil {
			return
		}
		if !errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
			t.Fatal(err)
		}
	}
}

// residue lists locks that are in use and watches, of one property: a client that
// was killed leaves its holds to whoever wants the lock next, and its watches to
// the server, which ends them after some minutes.
func (s *natsServer) residue(t testing.TB) (left []string) {
	ctx, mine := context.Background(), key(t.Name())
	all, err := s.kv.ListKeys(ctx)
	must(t, err)
	for k := range all.Keys() {
		if !strings.HasPrefix(k, mine) {
			continue
		}
		if st := s.state(t, k); len(st.Holders)+len(st.Queue) > 0 {
			left = append(left, k)
		}
	}
	js, err := jetstream.New(s.admin)
	must(t, err)
	stream, err := js.Stream(ctx, "KV_dlock")
	must(t, err)
	for c := range stream.ListConsumers(ctx).Info() {
		if strings.HasPrefix(c.Config.FilterSubject, "$KV.dlock."+mine) {
			left = append(left, "watch of "+c.Config.FilterSubject)
		}
	}
	return left
}

func (s *natsServer) foreign(t testing.TB, name string) func() error {
	_, err := s.kv.Put(context.Background(), key(name), []byte("theirs"))
	must(t, err)
	return func() error {
		if value, _ := s.get(t, key(name)); string(value) != "theirs" {
			return fmt.Errorf("the value is %q", value)
		}
		return nil
	}
}

func (s *natsServer) borrow(t testing.TB) (backend.Backend, func() error) {
	nc, err := nats.Connect("nats://" + login + s.server.Addr().String())
	must(t, err)
	t.Cleanup(nc.Close)
	b, err := New(context.Background(), nc, nil)
	must(t, err)
	return b, nc.Flush
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
