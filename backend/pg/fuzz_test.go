package pg

import (
	"errors"
	"strings"
	"testing"

	"github.com/dlock-go/dlock/backend"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// FuzzWords has somebody notify a client of anything. A word wakes who waits for that key,
// and nobody else.
func FuzzWords(f *testing.F) {
	for _, text := range []string{"7", "-7", "07", "+7", " 7", "7 ", "9223372036854775808", "7\x00", ""} {
		f.Add(wakeChannel, text)
	}
	f.Add("other", "7")
	f.Fuzz(func(t *testing.T, channel, text string) {
		mine, other := &attempt{wake: make(chan struct{}, 1)}, &attempt{wake: make(chan struct{}, 1)}
		b := &Backend{locks: map[int64]*localLock{7: {attempt: mine}, 8: {attempt: other}, 9: {}}}
		b.handleNotification(&pgproto3.NotificationResponse{Channel: channel, Payload: text})
		if len(mine.wake) > 0 && (channel != wakeChannel || strings.TrimLeft(text, "+0") != "7") || len(other.wake) > 0 && strings.TrimLeft(text, "+0") != "8" {
			t.Errorf("woken by %q on %q", text, channel)
		}
	})
}

// FuzzRows has a server answer statements with any values.
func FuzzRows(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x00\x00\x00\x00\x01"), "5", uint8(2))
	f.Fuzz(func(t *testing.T, value []byte, text string, n uint8) {
		st := &statement{calls: []*call{{}, {}}}
		taken := 0
		for i := range n {
			values := [][]byte{value}
			if i%7 == 6 {
				values = append(values, nil)
			}
			if st.row(&pgproto3.DataRow{Values: values}) {
				taken++
			}
		}
		if taken > len(st.calls)+1 {
			t.Errorf("%d rows taken for %d calls", taken, len(st.calls))
		}
		rows := make([][][]byte, n%3)
		for i := range rows {
			rows[i] = [][]byte{[]byte(text), value, nil}
		}
		_, _ = ints(&pgconn.Result{Rows: rows})
		if q := newSequences(text); strings.Count(q.numbersPath, `"`)%2 != 0 || strings.Count(quoteLiteral(text), "'")%2 != 0 {
			t.Errorf("%q is not quoted", text)
		}
	})
}

// FuzzURL reads URLs: what is wrong has a kind, and does not show the password.
func FuzzURL(f *testing.F) {
	const canary = "c4n4ry-in-a-url"
	for _, u := range []string{
		"postgres://h:1,h2/db?sslmode=verify-full", "postgres:///db?host=/tmp&port=1", "postgresql://h/db?slice=1s&owner=x", "postgres://h?options=-c%20a=b",
		"postgres://h?sslmode=no", "postgres://h?sslrootcert=/none", "postgres://h?max_conns=-1", "postgres://h?require_auth=none",
	} {
		f.Add(u)
	}
	f.Fuzz(func(t *testing.T, text string) {
		u, err := backend.ParseURL(text)
		if err != nil {
			return
		}
		u.User, u.Password = "user", backend.NewSecret(canary)
		o, conn, err := parse(backend.Config{URL: u})
		if err == nil {
			_, err = newBackend(conn, o)
		}
		if err != nil && (!errors.Is(err, backend.ErrInvalidConfig) || strings.Contains(err.Error(), canary)) {
			t.Errorf("%v", err)
		}
	})
}
