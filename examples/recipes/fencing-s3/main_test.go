package main

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/dlock-go/dlock/examples/recipes/internal/try"
)

// A store is a server that speaks S3, with conditional writes, and keeps its objects in
// memory. It calls beforePut, if there is one, before the first write.
type store struct {
	*s3.Client
	beforePut atomic.Pointer[func()]
}

const bucket = "shop"

func startStore(t *testing.T) *store {
	objects := s3mem.New()
	if err := objects.CreateBucket(bucket); err != nil {
		t.Fatal(err)
	}
	s := &store{}
	s3api := gofakes3.New(objects).Server()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			if before := s.beforePut.Swap(nil); before != nil {
				(*before)()
			}
		}
		s3api.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	s.Client = s3.New(s3.Options{
		BaseEndpoint: aws.String(server.URL),
		Region:       "us-east-1",
		UsePathStyle: true,
		Credentials:  aws.AnonymousCredentials{},
	})
	return s
}

func (s *store) save(t *testing.T, state string, token uint64) error {
	return save(t.Context(), s.Client, bucket, "orders/42.json", order{state, token})
}

func (s *store) want(t *testing.T, state string, token uint64) {
	t.Helper()
	o, _, err := load(t.Context(), s.Client, bucket, "orders/42.json")
	if err != nil || o.State != state || o.Fence != token {
		t.Errorf("the order is %v, %v, want %s by %d", o, err, state, token)
	}
}

func TestStaleWriteIsRefused(t *testing.T) {
	s := startStore(t)
	url, _ := try.Redis(t)
	stale, live := try.TwoTokens(t, url, "orders/42")
	try.LateWrites(t, stale, live, errStale, func(state string, token uint64) error {
		return s.save(t, state, token)
	})
	s.want(t, "shipped", live)
}

// The next holder writes between the look and the write of one that is stale, also if it
// writes what was there before.
func TestStaleWriteThatHasLooked(t *testing.T) {
	const stale, live = 1, 2
	for before, want := range map[string]string{"": "packed", "paid": "paid"} {
		s := startStore(t)
		if before != "" {
			if err := s.save(t, before, stale); err != nil {
				t.Fatal(err)
			}
		}
		next := func() {
			if err := s.save(t, want, live); err != nil {
				t.Error(err)
			}
		}
		s.beforePut.Store(&next)
		if err := s.save(t, "cancelled", stale); !errors.Is(err, errStale) {
			t.Errorf("over %q: got %v, want errStale", before, err)
		}
		s.want(t, want, live)
	}
}
