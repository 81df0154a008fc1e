package queue

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// A scene is a queue with its mutex, and an exclusive entry inside.
type scene struct {
	mu sync.Mutex
	q  Queue[int]
}

func newScene() *scene {
	s := new(scene)
	s.q.TryEnter(backend.Exclusive)
	return s
}

// join has w join the queue, and returns the function that waits.
func (s *scene) join(w *Waiter[int]) func(context.Context, <-chan struct{}) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.q.Join(w)
	return func(ctx context.Context, abort <-chan struct{}) error { return w.Wait(ctx, &s.q, &s.mu, abort) }
}

func writer() *Waiter[int] { return NewWaiter(0, backend.Exclusive, false, true) }

// A wait ends with its context or its abort channel, and the waiter leaves the queue.
func TestWaitEnds(t *testing.T) {
	s, ended := newScene(), make(chan struct{})
	close(ended)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.join(writer())(ctx, nil); !errors.Is(err, context.Canceled) || !errors.Is(err, backend.ErrHeld) {
		t.Errorf("the context is done: %v", err)
	}
	if err := s.join(writer())(t.Context(), ended); !errors.Is(err, ErrAborted) {
		t.Errorf("aborted: %v", err)
	}
	if s.q.First() != nil {
		t.Error("somebody still waits")
	}
}

// A waiter whose context ends just when it is admitted either enters, or gives the place
// to the next one.
func TestCancelAtAdmission(t *testing.T) {
	for range 200 {
		s, w, next := newScene(), writer(), writer()
		wait, waitNext := s.join(w), s.join(next)
		ctx, cancel := context.WithCancel(t.Context())
		go cancel()
		go func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.q.Leave(backend.Exclusive)
		}()
		if wait(ctx, nil) == nil {
			s.mu.Lock()
			s.q.Leave(backend.Exclusive)
			s.mu.Unlock()
		}
		if err := waitNext(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
}

// A place that was handed over is kept, also by a waiter whose context has ended: it may
// have something to give back.
func TestHandOverBeforeCancel(t *testing.T) {
	s, w := newScene(), writer()
	wait := s.join(w)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.mu.Lock()
	w.Value = 7
	s.q.HandOver()
	s.mu.Unlock()
	if err := wait(ctx, nil); err != nil || w.Value != 7 {
		t.Errorf("got %d, %v", w.Value, err)
	}
	if s.q.TryEnter(backend.Shared) {
		t.Error("a reader entered beside the writer")
	}
}

// As long as nobody knows whether the lock is held, a wait is limited, and ends as one
// for a server that does not answer.
func TestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, start := newScene(), time.Now()
		err := s.join(NewWaiter(0, backend.Exclusive, false, false))(t.Context(), nil)
		if took := time.Since(start); !errors.Is(err, backend.ErrUnavailable) || took != backend.FirstAnswer {
			t.Errorf("%v after %v", err, took)
		}
		wait := s.join(NewWaiter(0, backend.Exclusive, false, false))
		s.mu.Lock()
		s.q.NoteHeld()
		s.mu.Unlock()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := wait(ctx, nil); !errors.Is(err, backend.ErrHeld) {
			t.Errorf("the lock is known to be held: %v", err)
		}
	})
}

// Who waits behind one that the server has answered waits for as long as that waits on, and then has the time of a
// first answer. One that only tries does not wait for it.
func TestSilenceBehindOneThatIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, start := newScene(), time.Now()
		s.mu.Lock()
		s.q.NoteAnswered(false)
		s.mu.Unlock()
		wait := s.join(NewWaiter(0, backend.Exclusive, false, false))
		try := s.join(NewWaiter(0, backend.Exclusive, true, false))
		if err := try(t.Context(), nil); !errors.Is(err, backend.ErrUnavailable) || time.Since(start) != backend.FirstAnswer {
			t.Errorf("the try: %v after %v", err, time.Since(start))
		}
		const waitsOn = time.Minute
		time.AfterFunc(waitsOn-time.Since(start), func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.q.EndAnswered(false, false)
		})
		err := wait(t.Context(), nil)
		if took := time.Since(start); !errors.Is(err, backend.ErrUnavailable) || took != waitsOn+backend.FirstAnswer {
			t.Errorf("%v after %v", err, took)
		}
	})
}

// Who waits behind a try that the server has answered, and that goes on, knows as much, also who only tries.
func TestWaitBehindAnAnsweredTry(t *testing.T) {
	for _, tries := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s, start := newScene(), time.Now()
			s.mu.Lock()
			s.q.NoteAnswered(true)
			s.mu.Unlock()
			wait := s.join(NewWaiter(0, backend.Exclusive, tries, false))
			const goesOn = 2 * backend.FirstAnswer
			time.AfterFunc(goesOn, func() {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.q.EndAnswered(true, false)
			})
			err := wait(t.Context(), nil)
			if took := time.Since(start); !errors.Is(err, backend.ErrUnavailable) || took != goesOn+backend.FirstAnswer {
				t.Errorf("tries %v: %v after %v", tries, err, took)
			}
		})
	}
}

// A waiter that only tries is turned away as soon as the lock is known to be held, and
// those behind it are not held up.
func TestTryOnly(t *testing.T) {
	var s scene
	s.q.TryEnter(backend.Shared)
	try := s.join(NewWaiter(0, backend.Exclusive, true, false))
	reader := s.join(NewWaiter(0, backend.Shared, false, false))
	s.mu.Lock()
	s.q.NoteHeld()
	s.mu.Unlock()
	if err := try(t.Context(), nil); !errors.Is(err, backend.ErrHeld) {
		t.Errorf("the try: %v", err)
	}
	if err := reader(t.Context(), nil); err != nil {
		t.Errorf("the reader behind it: %v", err)
	}
}

func TestFailAll(t *testing.T) {
	s := newScene()
	first, second := s.join(writer()), s.join(writer())
	s.mu.Lock()
	s.q.FailAll(backend.ErrClosed)
	s.mu.Unlock()
	for _, wait := range []func(context.Context, <-chan struct{}) error{first, second} {
		if err := wait(t.Context(), nil); !errors.Is(err, backend.ErrClosed) {
			t.Error(err)
		}
	}
}
