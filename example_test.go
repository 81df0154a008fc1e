package dlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/dlock-go/dlock"
	_ "github.com/dlock-go/dlock/backend/memory"
)

func Example() {
	ctx := context.Background()
	client, err := dlock.Open(ctx, "memory://", nil) // or file://, redis://host:6379, ...
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)

	err = dlock.Do(ctx, client.Mutex("orders/42"), func(ctx context.Context, lease *dlock.Lease) error {
		fmt.Println("nobody else works on order 42")
		return nil // ctx ends if the lock is lost; lease.Token() fences what is written
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: nobody else works on order 42
}

func ExampleMutex_Lock() {
	ctx := context.Background()
	client := open(ctx)
	defer client.Close(ctx)

	wait, cancel := context.WithTimeout(ctx, 5*time.Second) // bounds the wait, not the hold
	defer cancel()
	lease, err := client.Mutex("orders/42").Lock(wait)
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Unlock(ctx)

	work := lease.Context(ctx) // ends, with cause dlock.ErrLost, if the lock is lost
	fmt.Println(work.Err())
	// Output: <nil>
}

func ExampleMutex_TryLock() {
	ctx := context.Background()
	client := open(ctx)
	defer client.Close(ctx)

	nightly := client.Mutex("nightly-report")
	lease, err := nightly.TryLock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Unlock(ctx)

	switch _, err := nightly.TryLock(ctx); {
	case errors.Is(err, dlock.ErrHeld):
		fmt.Println("another machine has it")
	case err != nil:
		fmt.Println("nobody knows:", err)
	}
	// Output: another machine has it
}

func ExampleTryDo() {
	ctx := context.Background()
	client := open(ctx)
	defer client.Close(ctx)
	backUp := func(context.Context, *dlock.Lease) error {
		fmt.Println("backing up")
		return nil
	}

	for range 2 { // machines
		nightly := client.Mutex("nightly", dlock.WithMinHold(time.Minute)) // clocks differ by less
		switch err := dlock.TryDo(ctx, nightly, backUp); {
		case errors.Is(err, dlock.ErrHeld):
			fmt.Println("another machine has it")
		case err != nil:
			fmt.Println("nobody knows:", err)
		}
	}
	// Output:
	// backing up
	// another machine has it
}

func ExampleLease_Token() {
	ctx := context.Background()
	client := open(ctx)
	defer client.Close(ctx)

	var stored uint64 // kept beside the data, in the same transaction
	write := func(token uint64) error {
		if token < stored {
			return errors.New("refused: a later holder has written")
		}
		stored = token
		return nil
	}

	l := client.Mutex("orders/42")
	first, err := l.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	first.Unlock(ctx)
	second, err := l.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer second.Unlock(ctx)

	fmt.Println(write(second.Token()))
	fmt.Println(write(first.Token())) // a holder that was paused and woke up
	// Output:
	// <nil>
	// refused: a later holder has written
}

func ExampleRWMutex() {
	ctx := context.Background()
	client := open(ctx)
	defer client.Close(ctx)

	prices := client.RWMutex("prices")
	one, err := prices.RLock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	two, err := prices.RLock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	_, err = prices.TryLock(ctx)
	fmt.Println("a writer beside readers:", errors.Is(err, dlock.ErrHeld))
	one.Unlock(ctx)
	two.Unlock(ctx)
	// Output: a writer beside readers: true
}

func ExampleLease_Downgrade() {
	ctx := context.Background()
	client := open(ctx)
	defer client.Close(ctx)

	prices := client.RWMutex("prices")
	lease, err := prices.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Unlock(ctx)
	// ... write, then let others read what was written before anybody can change it:
	if err := lease.Downgrade(ctx); err != nil {
		log.Fatal(err)
	}
	reader, err := prices.TryRLock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer reader.Unlock(ctx)
	fmt.Println("reading together")
	// Output: reading together
}

// A function can take a lock whether or not its caller holds it already.
func Example_reentry() {
	ctx := context.Background()
	client := open(ctx)
	defer client.Close(ctx)

	account := client.Mutex("account/7")
	deposit := func(ctx context.Context) error {
		return dlock.Do(ctx, account, func(context.Context, *dlock.Lease) error {
			fmt.Println("deposit")
			return nil
		})
	}
	err := dlock.Do(ctx, account, func(ctx context.Context, _ *dlock.Lease) error {
		return deposit(ctx) // enters again: the context says who holds the lock
	})
	fmt.Println(err)
	// Output:
	// deposit
	// <nil>
}

func ExampleClient_Multi() {
	ctx := context.Background()
	client := open(ctx)
	defer client.Close(ctx)

	both := client.Multi([]string{"account/9", "account/7"}) // all or none, and never a deadlock
	err := dlock.Do(ctx, both, func(ctx context.Context, lease *dlock.Lease) error {
		fmt.Println(lease.TokenOf("account/7") != 0, lease.TokenOf("account/9") != 0)
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: true true
}

func ExampleLead() {
	ctx, cancel := context.WithCancel(context.Background())
	client := open(ctx)
	defer client.Close(context.Background())

	err := dlock.Lead(ctx, client.Mutex("leader"), func(ctx context.Context, lease *dlock.Lease) error {
		fmt.Println("leading")
		cancel() // a real leader works until ctx is done
		<-ctx.Done()
		return nil
	})
	fmt.Println(err)
	// Output:
	// leading
	// context canceled
}

func ExampleWithMaxHold() {
	ctx := context.Background()
	client := open(ctx)
	defer client.Close(ctx)

	brief := client.Mutex("orders/42", dlock.WithMaxHold(10*time.Millisecond))
	lease, err := brief.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	<-lease.Context(ctx).Done() // work that never ends
	fmt.Println(errors.Is(lease.Err(), dlock.ErrLost))
	// Output: true
}

func ExampleWithMinHold() {
	ctx, cancel := context.WithCancel(context.Background())
	client := open(ctx)
	defer client.Close(ctx)
	defer cancel() // or Close waits for the rest of the minute

	nightly := client.Mutex("nightly-report", dlock.WithMinHold(time.Minute))
	lease, err := nightly.TryLock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	err = lease.Unlock(ctx) // the report was written in no time
	if err != nil {
		log.Fatal(err)
	}
	_, err = nightly.TryLock(ctx) // of a machine whose clock is a little behind
	fmt.Println(errors.Is(err, dlock.ErrHeld))
	// Output: true
}

func ExampleWithMaxWait() {
	ctx := context.Background()
	client := open(ctx)
	defer client.Close(ctx)

	patient := client.Mutex("orders/42", dlock.WithMaxWait(10*time.Millisecond))
	lease, err := patient.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Unlock(ctx)

	_, err = patient.Lock(ctx)
	fmt.Println(errors.Is(err, dlock.ErrHeld), errors.Is(err, context.DeadlineExceeded))
	// Output: true true
}

func ExampleWithoutReentry() {
	ctx := context.Background()
	client := open(ctx)
	defer client.Close(ctx)

	once := client.Mutex("orders/42", dlock.WithoutReentry())
	lease, err := once.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Unlock(ctx)

	_, err = once.Lock(lease.Context(ctx))
	fmt.Println(errors.Is(err, dlock.ErrReentry))
	// Output: true
}

func ExampleClient_NamedLocks() {
	ctx := context.Background()
	client := open(ctx)
	defer client.Close(ctx)

	locks := client.NamedLocks() // one for all who are to lock and unlock the same names
	lockState := func(name string) error {
		_, err := locks.Lock(ctx, name)
		return err
	}
	unlockState := func(name string) error {
		return locks.Unlock(ctx, name) // dlock.ErrLost if the lock has been lost meanwhile
	}

	fmt.Println(lockState("network/eu"), unlockState("network/eu"))
	fmt.Println(unlockState("network/eu"))
	// Output:
	// <nil> <nil>
	// dlock: unlock "network/eu": no such hold: no lock of that name is held here
}

func ExampleHooks() {
	ctx := context.Background()
	client, err := dlock.Open(ctx, "memory://", &dlock.Options{Hooks: dlock.Hooks{
		Acquired: func(_ context.Context, e dlock.AcquiredEvent) { fmt.Println("acquired", e.Name) }, // e.Waited: how long it took
		Released: func(_ context.Context, e dlock.ReleasedEvent) { fmt.Println("released", e.Name) }, // e.Age: how long it lasted
	}})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)

	err = dlock.Do(ctx, client.Mutex("orders/42"), func(context.Context, *dlock.Lease) error { return nil })
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// acquired orders/42
	// released orders/42
}

func ExampleConfig() {
	cfg := dlock.Config{
		URL: dlock.NewSecret("memory://?dlock.prefix=a/"),
		TTL: dlock.Duration(-time.Second),
	}
	fmt.Println(errors.Is(cfg.Validate(), dlock.ErrInvalidTTL))
	// Output: true
}

func open(ctx context.Context) *dlock.Client {
	client, err := dlock.Open(ctx, "memory://", nil)
	if err != nil {
		log.Fatal(err)
	}
	return client
}
