package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/examples/recipes/internal/try"
)

// serve runs one copy of the program and returns its address.
func serve(t *testing.T, locks *dlock.Client, folder string) string {
	t.Helper()
	uploads, err := newHandler(locks, folder)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.StripPrefix("/files/", uploads))
	t.Cleanup(server.Close)
	return server.URL
}

// request sends a request of the tus protocol. Headers are name and value in turn.
func request(ctx context.Context, method, url string, body io.Reader, headers ...string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Tus-Resumable", "1.0.0")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	reply, err := http.DefaultClient.Do(r)
	if err == nil {
		reply.Body.Close()
	}
	return reply, err
}

func must(t *testing.T, status int, reply *http.Response, err error) *http.Response {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	if reply.StatusCode != status {
		t.Fatalf("status %d, want %d", reply.StatusCode, status)
	}
	return reply
}

// create makes an upload of ten bytes and returns its path.
func create(t *testing.T, server string) string {
	t.Helper()
	reply, err := request(t.Context(), http.MethodPost, server+"/files/", nil, "Upload-Length", "10")
	place := must(t, http.StatusCreated, reply, err).Header.Get("Location")
	return place[strings.Index(place, "/files/"):]
}

// patch sends the body from an offset on.
func patch(ctx context.Context, url string, offset int, body io.Reader) (*http.Response, error) {
	return request(ctx, http.MethodPatch, url, body,
		"Upload-Offset", strconv.Itoa(offset), "Content-Type", "application/offset+octet-stream")
}

// stall begins to send an upload and stops in the middle, as a client does whose network
// has gone. The status of the reply, or 0, comes when the server ends the request.
func stall(t *testing.T, locks *dlock.Client, url string) <-chan int {
	t.Helper()
	body, send := io.Pipe()
	t.Cleanup(func() { send.Close() })
	status := make(chan int, 1)
	go func() {
		reply, err := patch(t.Context(), url, 0, body)
		if err != nil {
			status <- 0
			return
		}
		status <- reply.StatusCode
	}()
	if _, err := io.WriteString(send, "01234"); err != nil {
		t.Fatal(err)
	}
	name := "uploads/" + url[strings.LastIndex(url, "/")+1:]
	try.Await(t, "the request holds the lock", func() bool {
		lock, err := locks.Inspect(t.Context(), name)
		return err == nil && len(lock.Holders) == 1
	})
	return status
}

// A client whose connection hangs comes back at another server. The hanging request is
// interrupted at once, what it has received is kept, and the client goes on from there.
func TestWhoComesBackInterruptsTheHangingRequest(t *testing.T) {
	url, _ := try.Redis(t)
	folder := t.TempDir()
	locksA, locksB := try.Open(t, url, nil), try.Open(t, url, nil)
	a, b := serve(t, locksA, folder), serve(t, locksB, folder)
	upload := create(t, a)
	hanging := stall(t, locksB, a+upload)

	reply, err := request(t.Context(), http.MethodHead, b+upload, nil)
	offset, err := strconv.Atoi(must(t, http.StatusOK, reply, err).Header.Get("Upload-Offset"))
	if err != nil {
		t.Fatal(err)
	}
	if status := try.Receive(t, "the hanging request ends", hanging); status != http.StatusBadRequest {
		t.Errorf("the hanging request got status %d, want 400, by which tusd says that it was interrupted", status)
	}
	reply, err = patch(t.Context(), b+upload, offset, strings.NewReader("0123456789"[offset:]))
	must(t, http.StatusNoContent, reply, err)
	file, err := http.Get(a + upload)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Body.Close()
	if got, err := io.ReadAll(file.Body); err != nil || string(got) != "0123456789" {
		t.Errorf("the upload is %q, %v", got, err)
	}
}

// A request whose lock is taken away is interrupted too.
func TestLostLockInterruptsTheRequest(t *testing.T) {
	url, _ := try.Redis(t)
	locks, other := try.Open(t, url, nil), try.Open(t, url, nil)
	server := serve(t, locks, t.TempDir())
	upload := create(t, server)
	hanging := stall(t, other, server+upload)
	name := "uploads/" + upload[strings.LastIndex(upload, "/")+1:]
	lock, err := other.Inspect(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Break(t.Context(), name, lock.Holders[0].Token); err != nil {
		t.Fatal(err)
	}
	if status := try.Receive(t, "the request ends", hanging); status != http.StatusBadRequest {
		t.Errorf("the request ended with status %d, want 400, by which tusd says that it was interrupted", status)
	}
}

func TestNoServerIs503(t *testing.T) {
	url, redis := try.Redis(t)
	server := serve(t, try.Open(t, url, nil), t.TempDir())
	upload := create(t, server)
	if err := redis.Kill(); err != nil {
		t.Fatal(err)
	}
	reply, err := patch(t.Context(), server+upload, 0, strings.NewReader("0123456789"))
	must(t, http.StatusServiceUnavailable, reply, err)
}
