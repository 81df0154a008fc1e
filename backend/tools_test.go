package backend

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

var errTest = errors.New("the test says so")

func TestPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, tries := time.Now(), 0
		err := Poll(t.Context(), Backoff{Min: time.Second, Max: 4 * time.Second}, nil, func(context.Context) (bool, error) {
			tries++
			return tries == 6, nil
		})
		if took := time.Since(start); err != nil || took < 7*time.Second+500*time.Millisecond || took > 15*time.Second {
			t.Errorf("six tries took %v (%v), want pauses of 1, 2, 4, 4, 4 s less up to a half", took, err)
		}
	})
}

func TestPollEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		never := func(context.Context) (bool, error) { return false, nil }
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errTest)
		defer cancel()
		if err := Poll(ctx, Backoff{}, nil, never); OwnersCause(err) != errTest || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		fails := func(context.Context) (bool, error) { return false, ErrAuth }
		if err := Poll(t.Context(), Backoff{}, nil, fails); err != ErrAuth {
			t.Errorf("got %v", err)
		}
	})
}

func TestPollIsWoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wake := make(chan struct{})
		go func() { wake <- struct{}{} }()
		start, tries := time.Now(), 0
		_ = Poll(t.Context(), Backoff{Min: time.Hour, Max: time.Hour}, wake, func(context.Context) (bool, error) {
			tries++
			return tries == 2, nil
		})
		if time.Since(start) != 0 {
			t.Errorf("woken after %v", time.Since(start))
		}
	})
}

func TestBackoffKeepsToItsMax(t *testing.T) {
	for range 100 {
		const most = 5 * time.Millisecond
		b := Backoff{Max: most}
		for range 10 {
			if pause := b.Next(); pause > most {
				t.Fatalf("a pause of %v", pause)
			}
		}
	}
}

func TestDetach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, 1))
		cancel()
		ctx, end := Detach(ctx, time.Second)
		defer end()
		if ctx.Err() != nil || ctx.Value(key{}) != 1 {
			t.Error("detached too little, or too much")
		}
		if Sleep(ctx, time.Minute) {
			t.Error("it has no end")
		}
	})
}

func TestJanitorTriesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j Janitor
		tries := 0
		j.Do(time.Hour, func(context.Context) error {
			if tries++; tries < 5 {
				return errTest
			}
			return nil
		})
		if err := j.Close(t.Context()); err != nil || tries != 5 {
			t.Errorf("%d tries, %v", tries, err)
		}
		if j.Go(func(context.Context) { t.Error("a job ran after Close") }) {
			t.Error("Go after Close says yes")
		}
	})
}

func TestJanitorGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j Janitor
		fail := func(context.Context) error { return errTest }
		j.Do(time.Minute, fail)
		start := time.Now()
		if err := j.Close(t.Context()); err != nil || time.Since(start) != time.Minute {
			t.Errorf("closed after %v: %v", time.Since(start), err)
		}
		var k Janitor
		k.Do(time.Hour, fail)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start = time.Now()
		if err := k.Close(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
			t.Errorf("closed after %v: %v", time.Since(start), err)
		}
	})
}

func TestWaitEnded(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errTest)
	for answered, kind := range map[bool]error{true: ErrHeld, false: ErrUnavailable} {
		if err := WaitEnded(ctx, answered); !errors.Is(err, kind) || OwnersCause(err) != errTest {
			t.Errorf("got %v", err)
		}
	}
}

// What the owner of a context has given as its cause is nobody's word on the lock that was asked for.
func TestOwnersCauseIsNoKind(t *testing.T) {
	for _, cause := range kinds {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(Fail(cause, &net.OpError{Op: "dial"}))
		var dial *net.OpError
		err := WaitEnded(ctx, false)
		if errors.Is(err, cause) && cause != ErrUnavailable || errors.As(err, &dial) || !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, of the kind of the context's cause %v", err, cause)
		}
		if !errors.Is(OwnersCause(err), cause) {
			t.Errorf("the cause is %v, want %v", OwnersCause(err), cause)
		}
	}
}

// A request that the server has left without an answer for too long is not refused because
// somebody has the lock, even if an answer came at the last moment: it could have waited.
func TestWaitEndedByNoAnswer(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(NoAnswer(time.Second))
	for _, answered := range []bool{false, true} {
		if err := WaitEnded(ctx, answered); !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrHeld) {
			t.Errorf("answered %v: %v", answered, err)
		}
	}
}

// A program that has forgotten an import is told which.
func TestUnknownScheme(t *testing.T) {
	_, err := Open(t.Context(), Config{URL: &URL{Scheme: "redis"}})
	if !errors.Is(err, ErrInvalidConfig) || !strings.Contains(err.Error(), "import the package") {
		t.Error(err)
	}
}

// A driver's error of several lines reads as one sentence.
func TestOneLine(t *testing.T) {
	got := OneLine(errors.New("dlock: cannot connect:\n\thost a: refused\n\thost b: refused\n"))
	if want := "cannot connect: host a: refused; host b: refused"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestMargin(t *testing.T) {
	for granted, want := range map[time.Duration]time.Duration{
		10 * time.Millisecond: 5 * time.Millisecond,
		time.Second:           100 * time.Millisecond,
		time.Hour:             time.Second,
	} {
		if got := Margin(granted); got != want {
			t.Errorf("Margin(%v) = %v, want %v", granted, got, want)
		}
	}
}

// TestNextInBlock gives out what is left of a block, and nothing of the next.
func TestForEachGroup(t *testing.T) {
	holds := []*Hold{{Index: 0}, {Index: 1}, {Index: 2}}
	meet := make(chan int, 1) // without a buffer for both: each group waits for the other
	parity := func(h *Hold) int { return int(h.Index) % 2 }
	ForEachGroup(holds, parity, func(key int, group []*Hold) {
		if len(group) != 2-key || parity(group[0]) != key {
			t.Errorf("group %d has %d holds", key, len(group))
		}
		if key == 0 {
			meet <- 0
		} else {
			<-meet
		}
	})
}

func TestNextInBlock(t *testing.T) {
	const size, last = 16, 4*16 - 1
	h := &Hold{Token: 3 * size}
	for want := h.Token + 1; want <= last; want++ {
		token, ok := NextInBlock(h, size)
		if !ok || token != want {
			t.Fatalf("got %d, %v, want %d", token, ok, want)
		}
		h.Token = token
	}
	if token, ok := NextInBlock(h, size); ok {
		t.Errorf("%d is of the next block", token)
	}
}

// What a job has called may never return.
func TestJanitorLeavesAJobBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j Janitor
		end := make(chan struct{})
		defer close(end)
		j.Go(func(context.Context) { <-end })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		if err := j.Close(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > time.Second+unwinding {
			t.Errorf("closed after %v: %v", time.Since(start), err)
		}
	})
}

// Close ends a call under way, whose wait then says that the client is closed, and waits for
// it; no other call begins.
func TestCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Calls
		ctx, end, err := c.Begin(t.Context())
		if err != nil || c.Err() != nil {
			t.Fatalf("begin: %v, %v", err, c.Err())
		}
		over := false
		go func() {
			<-ctx.Done()
			if err := WaitEnded(ctx, true); err != ErrClosed {
				t.Errorf("the call ended by %v", err)
			}
			time.Sleep(time.Second)
			over = true
			end()
		}()
		if first := c.Close(); !first || !over {
			t.Errorf("the first Close: %v; it has waited: %v", first, over)
		}
		_, _, err = c.Begin(t.Context())
		if err != ErrClosed || c.Err() != ErrClosed || c.Close() {
			t.Errorf("after Close: %v, %v", err, c.Err())
		}
	})
}

// TestProgressOfSeveral has the backend and its caller hear of each answer.
func TestProgressOfSeveral(t *testing.T) {
	outer, inner := 0, 0
	ctx := WithProgress(WithProgress(t.Context(), func() { outer++ }), func() { inner++ })
	for range 2 {
		Rest(ctx, 0, 0)
	}
	if outer != 2 || inner != 2 {
		t.Errorf("of two answers the caller has heard of %d, the backend of %d", outer, inner)
	}
}

func TestRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct{ took, most, want time.Duration }{
			{time.Millisecond, time.Second, 19 * time.Millisecond},
			{time.Second, MaxRest, MaxRest},
			{-time.Second, MaxRest, 0},
		} {
			for _, times := range []int{1, 3} {
				start := time.Now()
				ctx := WithRests(WithRests(t.Context(), 2), times) // a quorum's, and that of its nodes
				said := Rest(ctx, c.took, c.most)
				if want := time.Duration(2*times) * c.want; said != want || time.Since(start) != want {
					t.Errorf("after %v, at most %v, %d times: %v, said %v, want %v", c.took, c.most, times, time.Since(start), said, want)
				}
			}
			if said := Rest(t.Context(), c.took, c.most); said != c.want {
				t.Errorf("after %v, at most %v: %v, want %v", c.took, c.most, said, c.want)
			}
		}
	})
}

func TestHasKind(t *testing.T) {
	for _, err := range []error{ErrHeld, ErrNotHeld, Fail(ErrAuth, io.EOF), Join(io.EOF, ErrClosed)} {
		if !HasKind(err) {
			t.Errorf("%v has no kind", err)
		}
	}
	if HasKind(io.EOF) || HasKind(nil) {
		t.Error("an error of something else has a kind")
	}
}

// TestTakeTLS has a configuration come from files, from the program, or from neither.
func TestTakeTLS(t *testing.T) {
	own := &tls.Config{ServerName: "own"}
	for _, test := range []struct {
		url       string
		given     *tls.Config
		encrypted bool
		want      string // of the server's name, or - for no encryption
		wrong     bool
	}{
		{url: "x://h", want: "-"},
		{url: "x://h", encrypted: true},
		{url: "x://h", given: own, want: "own"},
		{url: "x://h", given: own, encrypted: true, want: "own"},
		{url: "x://h?ca=/nowhere", encrypted: true, wrong: true},
		{url: "x://h?key=/nowhere", wrong: true},
		{url: "x://h?cert=/nowhere", given: own, encrypted: true, wrong: true},
	} {
		u, err := ParseURL(test.url)
		if err != nil {
			t.Fatal(err)
		}
		got, err := (&Config{URL: u, TLS: test.given}).TakeTLS(test.encrypted)
		switch {
		case test.wrong != errors.Is(err, ErrInvalidConfig):
			t.Errorf("%+v: %v", test, err)
		case test.wrong:
		case (got == nil) != (test.want == "-"), got != nil && got.ServerName != test.want:
			t.Errorf("%+v: %v", test, got)
		}
		if err := u.Params.Done(); err != nil {
			t.Errorf("%+v: left are %v", test, err)
		}
	}
}
