package redis

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/redis/go-redis/v9"
)

// TestFraming has replies of all kinds pass, and the first byte beyond a bound not.
func TestReplyLimits(t *testing.T) {
	for reply, want := range map[string]int{
		"+OK\r\n-ERR no\r\n:1\r\n_\r\n,1.5\r\n#t\r\n(12\r\n":                               -1,
		"$3\r\n\r\n*\r\n=7\r\ntxt:abc\r\n!2\r\nno\r\n$-1\r\n$0\r\n\r\n*-1\r\n":             -1,
		"*2\r\n*0\r\n%1\r\n+a\r\n~1\r\n:1\r\n>1\r\n$1\r\n\n\r\n":                           -1,
		"|1\r\n+a\r\n+b\r\n*1\r\n|1\r\n+a\r\n+b\r\n:1\r\n|0\r\n:2\r\n":                     -1,
		strings.Repeat("*1\r\n", maxDepth) + ":1\r\n" + strings.Repeat("*1\r\n", maxDepth): -1,
		strings.Repeat("*1\r\n", maxDepth+1):                                               4*maxDepth + 3,
		strings.Repeat("*2\r\n:1\r\n", maxDepth+1):                                         8*maxDepth + 3,
		strings.Repeat("*1\r\n|-1\r\n", maxDepth):                                          9*maxDepth/2 + 3,
		"$9223372036854775807\r\n":                                                         21,
		"$9223372036854775808\r\n":                                                         21,
		fmt.Sprintf("$%d\r\n", maxReply-5):                                                 10,
		fmt.Sprintf("*%d\r\n", maxReply/itemSize):                                          9,
		"+" + strings.Repeat("x", maxReply+1):                                              maxReply + 1,
		"*1x\r\n":                                                                          4,
	} {
		if want < 0 {
			want = len(reply)
		}
		whole, split := new(replyLimits), new(replyLimits)
		if got := whole.accept([]byte(reply)); got != want {
			t.Errorf("%.40q: %d bytes pass of %d, want %d", reply, got, len(reply), want)
		}
		n := 0
		for n < len(reply) && split.accept([]byte(reply[n:n+1])) == 1 {
			n++
		}
		if n != want || want == len(reply) && (split.kind != 0 || split.text != 0) {
			t.Errorf("%.40q, byte by byte: %d pass, %+v", reply, n, split)
		}
	}
}

// TestReplyLimitsOfTheWhole has a list whose items are each within the bounds.
func TestReplyLimitsOfTheWhole(t *testing.T) {
	for _, item := range []string{"$11\r\n", "*1\r\n", "+12345678\r\n"} {
		f := &replyLimits{total: maxReply - 10, lists: []int{2}}
		if n := f.accept([]byte(item)); n != len(item)-1 {
			t.Errorf("%q: %d bytes pass beyond the bound of the whole", item, n)
		}
	}
	f := &replyLimits{total: maxReply}
	if reply := "+OK\r\n"; f.accept([]byte(reply)) != len(reply) {
		t.Error("the next reply has no room")
	}
}

// A scripted is a connection to a server that says always the same.
type scripted struct {
	net.Conn
	says *bytes.Reader
}

func (s scripted) Read(b []byte) (int, error)  { return iotest.HalfReader(s.says).Read(b) }
func (s scripted) Write(b []byte) (int, error) { return len(b), nil }

// FuzzReplyLimits has the client library read whatever a server says: it neither panics nor
// takes more memory than the bounds let it.
func FuzzReplyLimits(f *testing.F) {
	for _, reply := range []string{
		"+OK\r\n", "*3\r\n$3\r\nfoo\r\n:1\r\n$-1\r\n", "$9223372036854775807\r\n", "$2147483647\r\n", "%1\r\n+a\r\n|1\r\n+b\r\n+c\r\n_\r\n",
		strings.Repeat("*1\r\n", 40), "-MOVED 1 :1\r\n", ">2\r\n+invalidate\r\n_\r\n:1\r\n", "*1\r\n", "=1\r\na\r\n", "(9\r\n", ",nan\r\n",
	} {
		f.Add([]byte(reply))
	}
	f.Fuzz(func(t *testing.T, says []byte) {
		ours, theirs := net.Pipe()
		defer ours.Close()
		defer theirs.Close()
		c := redis.NewClient(&redis.Options{
			Protocol: 2, DisableIdentity: true, MaxRetries: -1, DialerRetries: 1, PoolSize: 1,
			Dialer: limited(func(context.Context, string, string) (net.Conn, error) {
				return scripted{ours, bytes.NewReader(says)}, nil
			}),
		})
		defer c.Close()
		cmd := unrepeated{redis.NewCmd(t.Context(), "ping")}
		_ = c.Process(t.Context(), cmd)
		if reply, err := cmd.outcome(); reply == nil && err == nil {
			t.Error("neither a reply nor an error")
		}
	})
}
