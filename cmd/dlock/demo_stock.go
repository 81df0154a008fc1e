package main

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// thinking is how long a worker looks at the stock before taking from it. It is
// a sleep, so that others get to run in between even on a single core.
const thinking = 100 * time.Microsecond

// A stockFile is the stock, in a plain file. Workers share that file and nothing
// else; each writes a book of sales.
type stockFile struct {
	dir   string
	stock *os.File
}

func createStock(dir string, stock int) (*stockFile, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	s, err := openStock(dir)
	if err != nil {
		return nil, err
	}
	return s, s.setLeft(stock)
}

func openStock(dir string) (*stockFile, error) {
	f, err := os.OpenFile(filepath.Join(dir, "stock"), os.O_RDWR|os.O_CREATE, 0o600)
	return &stockFile{dir: dir, stock: f}, err
}

func (s *stockFile) close() { _ = s.stock.Close() }

// digits makes each write of the stock replace the whole of the last one.
const digits = 10

func (s *stockFile) left() (int, error) {
	text := make([]byte, digits)
	if _, err := s.stock.ReadAt(text, 0); err != nil {
		return 0, err
	}
	return strconv.Atoi(string(text))
}

func (s *stockFile) setLeft(n int) error {
	_, err := s.stock.WriteAt(fmt.Appendf(nil, "%0*d\n", digits, n), 0)
	return err
}

// sell takes one piece from the stock. It reports false if there is none.
func (s *stockFile) sell() (bool, error) {
	left, err := s.left()
	if err != nil || left == 0 {
		return false, err
	}
	sleepShort(thinking)
	return true, s.setLeft(left - 1)
}

// A book is one worker's list of sales: for each, how long the worker had to
// wait for the lock.
type book struct{ file *os.File }

func (s *stockFile) bookOf(worker int) string {
	return filepath.Join(s.dir, "worker-"+strconv.Itoa(worker))
}

func (s *stockFile) openBook(worker int) (book, error) {
	f, err := os.OpenFile(s.bookOf(worker), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	return book{f}, err
}

func (b book) enter(waited time.Duration) error {
	_, err := fmt.Fprintln(b.file, waited.Nanoseconds())
	return err
}

// readBook returns the number of sales in a worker's book and the longest wait.
func (s *stockFile) readBook(worker int) (sold int, longest time.Duration, err error) {
	f, err := os.Open(s.bookOf(worker))
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
