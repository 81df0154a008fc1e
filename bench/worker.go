package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/dlock-go/dlock"
)

// workerName makes this program one process of the comparison across processes:
//
//	bench worker URL - CLIENTS FIRST FILE
//
// jvm/Worker.java is the same for libraries of Java. A worker says "ready", and for each
// line "MILLISECONDS NAME" has its clients contend for that lock. It answers with
// "HANDOVERS OVERLAPS CYCLES...", with the cycles of each client.
const workerName = "worker"

func workerMain(args []string, in io.Reader, out io.Writer) error {
	if len(args) != 5 {
		return errors.New("want: bench worker URL - CLIENTS FIRST FILE")
	}
	count, err1 := strconv.Atoi(args[2])
	first, err2 := strconv.Atoi(args[3])
	shared, err3 := openRegister(args[4])
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	var clients []*dlock.Client
	for range count {
		c, err := dlock.Open(context.Background(), args[0], nil)
		if err != nil {
			return err
		}
		defer c.Close(context.Background())
		clients = append(clients, c)
	}
	fmt.Fprintln(out, "ready")
	for lines := bufio.NewScanner(in); lines.Scan(); {
		millis, name, _ := strings.Cut(lines.Text(), " ")
		n, err := strconv.Atoi(millis)
		if err != nil {
			return err
		}
		answer, err := contend(clients, int64(first), shared, time.Duration(n)*time.Millisecond, name)
		if err != nil {
			return err
		}
		fmt.Fprintln(out, answer)
	}
	return nil
}

func contend(clients []*dlock.Client, first int64, shared *register, d time.Duration, name string) (string, error) {
	ctx, end := context.Background(), time.Now().Add(d)
	var handOvers, overlaps atomic.Int64
	cycles := make([]int, len(clients))
	errs := make([]error, len(clients))
	var all sync.WaitGroup
	for i, c := range clients {
		all.Go(func() {
			for m := c.Mutex(name); time.Now().Before(end); cycles[i]++ {
				lease, err := m.Lock(ctx)
				if err != nil {
					errs[i] = err
					return
				}
				shared.enter(first+int64(i), &handOvers, &overlaps)
				shared.leave()
				if errs[i] = lease.Unlock(ctx); errs[i] != nil {
					return
				}
			}
		})
	}
	all.Wait()
	return fmt.Sprint(handOvers.Load(), " ", overlaps.Load(), " ", strings.Trim(fmt.Sprint(cycles), "[]")), errors.Join(errs...)
}

// A register is memory that all processes share: who is in, and who was in last. Zero is
// nobody.
type register struct{ in, last *atomic.Int64 }

const registerSize = 16

func openRegister(path string) (*register, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	memory, err := unix.Mmap(int(f.Fd()), 0, registerSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	return &register{(*atomic.Int64)(unsafe.Pointer(&memory[0])), (*atomic.Int64)(unsafe.Pointer(&memory[8]))}, nil
}

func (r *register) enter(who int64, handOvers, overlaps *atomic.Int64) {
	if r.in.Swap(who) != 0 {
		overlaps.Add(1)
	}
	if r.last.Swap(who) != who {
		handOvers.Add(1)
	}
}

func (r *register) leave() { r.in.Store(0) }
