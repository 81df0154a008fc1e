package quorum_test

import (
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend/quorum"
)

var notReady = regexp.MustCompile(`node=(\d) until=(\S+)`)

// Who waits for nodes that do not vote yet is told which these are, and until when: of each
// once, however many wait, and again when it has forgotten everything once more. Who does not
// wait for them is told nothing.
func TestNodesThatDoNotVoteAreLogged(t *testing.T) {
	in(t, 3, func(t *testing.T, s nodes) {
		var log strings.Builder
		c := s.open(t, &quorum.Options{MaxTTL: ttl, Skew: skew, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		logged := func(want string) {
			t.Helper()
			synctest.Wait()
			var got []string
			for _, m := range notReady.FindAllStringSubmatch(log.String(), -1) {
				got = append(got, m[1])
				until, err := time.Parse(time.RFC3339, m[2])
				ok(t, err)
				must(t, time.Since(until).Abs() <= 2*time.Second, "node %s votes until %v, and Lock returns at %v", m[1], until, time.Now())
			}
			slices.Sort(got)
			must(t, strings.Join(got, "") == want, "logged are the nodes %v, want %q:\n%s", got, want, log.String())
			log.Reset()
		}
		_, err := c.try("x")
		is(t, err, dlock.ErrUnavailable)
		logged("")
		waits := make(chan *dlock.Lease)
		go func() { waits <- c.lock("y") }()
		c.unlock(c.lock("x"))
		c.unlock(<-waits)
		logged("123")
		s[2].Wipe()
		c.unlock(c.lock("x"))
		logged("") // the others are enough
		s[0].Wipe()
		c.unlock(c.lock("x"))
		logged("13")
	})
}
