package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/examples/recipes/internal/try"
)

// service is one copy of the program, whose work waits for the test.
type service struct {
	url   string
	began chan string
	goOn  chan error
}

func serve(t *testing.T, locks *dlock.Client) *service {
	s := &service{began: make(chan string, 1), goOn: make(chan error, 1)}
	server := httptest.NewServer(newHandler(locks, func(ctx context.Context, order string, _ uint64) error {
		s.began <- order
		select {
		case err := <-s.goOn:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}))
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

func (s *service) ship(order string) *http.Response {
	reply, err := http.Post(s.url+"/orders/"+order+"/ship", "", nil)
	if err != nil {
		return &http.Response{Status: err.Error()}
	}
	reply.Body.Close()
	return reply
}

// begin starts a request and returns when its work has begun.
func (s *service) begin(t *testing.T, order string) <-chan *http.Response {
	t.Helper()
	ended := make(chan *http.Response, 1)
	go func() { ended <- s.ship(order) }()
	try.Receive(t, "the work on order "+order, s.began)
	return ended
}

func want(t *testing.T, status int, reply *http.Response) {
	t.Helper()
	if reply.StatusCode != status {
		t.Errorf("status %q, want %d", reply.Status, status)
	}
	again := status == http.StatusConflict || status == http.StatusServiceUnavailable
	if (reply.Header.Get("Retry-After") != "") != again {
		t.Errorf("status %d with Retry-After %q", status, reply.Header.Get("Retry-After"))
	}
}

func TestHeldIs409AndOthersGoOn(t *testing.T) {
	t.Parallel()
	url, _ := try.Redis(t)
	a, b := serve(t, try.Open(t, url, nil)), serve(t, try.Open(t, url, nil))
	first := a.begin(t, "42")
	want(t, http.StatusConflict, b.ship("42"))
	b.goOn <- nil
	want(t, http.StatusNoContent, b.ship("43"))
	try.Receive(t, "the work on order 43", b.began)
	a.goOn <- nil
	want(t, http.StatusNoContent, try.Receive(t, "the first reply", first))
	b.goOn <- nil
	want(t, http.StatusNoContent, b.ship("42"))
}

// A request that comes while the order is worked on waits for a moment, and is served if
// that ends.
func TestShortWorkIsWaitedFor(t *testing.T) {
	t.Parallel()
	url, _ := try.Redis(t)
	locks := try.Open(t, url, nil)
	a, b := serve(t, locks), serve(t, try.Open(t, url, nil))
	for { // on a busy machine the wait of a second may be over before it is seen
		first := a.begin(t, "42")
		second := make(chan *http.Response, 1)
		go func() { second <- b.ship("42") }()
		try.Await(t, "the second request waits, or has its reply", func() bool {
			return len(second) == 1 || try.Waiters(t, locks, "orders/42") == 1
		})
		b.goOn <- nil
		a.goOn <- nil
		want(t, http.StatusNoContent, try.Receive(t, "the first reply", first))
		reply := try.Receive(t, "the second reply", second)
		if reply.StatusCode == http.StatusConflict {
			<-b.goOn
			continue
		}
		want(t, http.StatusNoContent, reply)
		return
	}
}

// Both ways in which a server can be away: nobody listens, and nobody answers.
func TestAwayIs503(t *testing.T) {
	for _, away := range []string{"killed", "stopped"} {
		t.Run(away, func(t *testing.T) {
			t.Parallel()
			url, redis := try.Redis(t)
			a := serve(t, try.Open(t, url, nil))
			end := redis.Kill
			if away == "stopped" {
				end = redis.Pause
			}
			if err := end(); err != nil {
				t.Fatal(err)
			}
			want(t, http.StatusServiceUnavailable, a.ship("42"))
		})
	}
}

// A lock that is lost while the work runs ends the work. The reply is no success.
func TestLostIs500(t *testing.T) {
	t.Parallel()
	url, _ := try.Redis(t)
	other := try.Open(t, url, nil)
	a := serve(t, try.Open(t, url, nil))
	first := a.begin(t, "42")
	lock, err := other.Inspect(t.Context(), "orders/42")
	if err != nil || len(lock.Holders) != 1 {
		t.Fatal(lock, err)
	}
	if err := other.Break(t.Context(), "orders/42", lock.Holders[0].Token); err != nil {
		t.Fatal(err)
	}
	want(t, http.StatusInternalServerError, try.Receive(t, "the reply", first))
}

func TestLongNameIs400(t *testing.T) {
	t.Parallel()
	url, _ := try.Redis(t)
	want(t, http.StatusBadRequest, serve(t, try.Open(t, url, nil)).ship(strings.Repeat("4", 2000)))
}
