package redlock

import (
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/backend/quorum"
)

// Servers that were there long before the first client need no more time, also where that is on
// somebody's own clients of them. Those ask by EVALSHA first, which a server counts as use although it
// does not know the script.
func TestServersThatHaveBeenUpOnClientsOfOnesOwn(t *testing.T) {
	t.Parallel()
	masters := startAgedMasters(t)
	o := &quorum.Options{MaxTTL: 500 * time.Millisecond, Skew: 50 * time.Millisecond}
	c := clientOf(t, strings.Split(addresses(masters), ","), o, 500*time.Millisecond)
	l, err := c.Mutex("x").TryLock(t.Context())
	ok(t, err)
	ok(t, l.Unlock(t.Context()))
}
