package simulation

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/dlock-go/dlock"
)

// refusals are what errors begin with of a server that cannot serve now, and may in a moment.
var refusals = []string{"READONLY ", "LOADING ", "BUSY ", "NOREPLICAS ", "CLUSTERDOWN ", "MASTERDOWN ", "redis: nil", "IDONTKNOW "}

// taking are the calls that take one lock.
var taking = []string{"lock", "trylock", "rlock", "tryrlock"}

// waitsOut checks that a call to take a lock does not fail for what passes before a server has had the
// time of a first answer, whatever the words in which its version tells of what a script has met.
func (r *register) waitsOut(c *call, err error) {
	if r.w.plan.Backend != "redis" || !errors.Is(err, dlock.ErrUnavailable) || errors.Is(err, dlock.ErrClosed) || c.ctx.Err() != nil || c.hurried || c.nested ||
		c.patient != (time.Time{}) || len(c.names) != 1 || !slices.Contains(taking, c.what) || r.isBehindHurried(c) || r.closing[c.client] || r.stuttered(c.start) {
		return
	}
	said := brief(err)
	if !slices.ContainsFunc(refusals, func(word string) bool { return strings.Contains(said, word) }) {
		return
	}
	r.coverage["a refusal that passes × "+c.what]++
	if took := time.Since(c.start); took < firstAnswer-late {
		r.violate("what passes is waited out", "c%d %s %v has failed after %v: %v", c.client, c.what, c.names, took, said)
	}
}
