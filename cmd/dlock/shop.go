package main

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// thinking is how long a clerk looks at the stock before taking from it. It is
// a sleep, so that others get to run in between even on a single core.
const thinking = 100 * time.Microsecond

// think sleeps in the kernel: the runtime would round up to a millisecond.
func think() {
	t := syscall.NsecToTimespec(thinking.Nanoseconds())
	_ = syscall.Nanosleep(&t, nil) // a signal may shorten it
}

// A shop keeps its stock in a plain file. Clerks share that file and nothing
// else; each writes a book of sales.
type shop struct {
	dir   string
	stock *os.File
}

func createShop(dir string, stock int) (*shop, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	s, err := openShop(dir)
	if err != nil {
		return nil, err
	}
	return s, s.setLeft(stock)
}

func openShop(dir string) (*shop, error) {
	f, err := os.OpenFile(filepath.Join(dir, "stock"), os.O_RDWR|os.O_CREATE, 0o600)
	return &shop{dir: dir, stock: f}, err
}

func (s *shop) close() { _ = s.stock.Close() }

// digits makes each write of the stock replace the whole of the last one.
const digits = 10

func (s *shop) left() (int, error) {
	text := make([]byte, digits)
	if _, err := s.stock.ReadAt(text, 0); err != nil {
		return 0, err
	}
	return strconv.Atoi(string(text))
}

func (s *shop) setLeft(n int) error {
	_, err := s.stock.WriteAt(fmt.Appendf(nil, "%0*d\n", digits, n), 0)
	return err
}

// sell takes one piece from the stock. It reports false if there is none.
func (s *shop) sell() (bool, error) {
	left, err := s.left()
	if err != nil || left == 0 {
		return false, err
	}
	think()
	return true, s.setLeft(left - 1)
}

// A book is one clerk's list of sales: for each, how long the clerk had to
// wait for the lock.
type book struct{ file *os.File }

func (s *shop) bookOf(clerk int) string {
	return filepath.Join(s.dir, "clerk-"+strconv.Itoa(clerk))
}

func (s *shop) openBook(clerk int) (book, error) {
	f, err := os.OpenFile(s.bookOf(clerk), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	return book{f}, err
}

func (b book) enter(waited time.Duration) error {
	_, err := fmt.Fprintln(b.file, waited.Nanoseconds())
	return err
}

// readBook returns the number of sales in a clerk's book and the longest wait.
func (s *shop) readBook(clerk int) (sold int, longest time.Duration, err error) {
	f, err := os.Open(s.bookOf(clerk))
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		waited, err := strconv.ParseInt(strings.TrimSpace(lines.Text()), 10, 64)
		if err != nil {
			return 0, 0, err
		}
		sold++
		longest = max(longest, time.Duration(waited))
	}
	return sold, longest, lines.Err()
}
