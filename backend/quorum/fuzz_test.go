package quorum

import (
	"errors"
	"strings"
	"testing"

	"github.com/dlock-go/dlock/backend"
)

// FuzzURL reads URLs: what is wrong has a kind, and does not show the password.
func FuzzURL(f *testing.F) {
	const canary = "c4n4ry-in-a-url"
	for _, u := range []string{
		"redlock://a,b,c?dlock.skew=1s", "redlocks://a:1,a:2,[::1]/1?dlock.need=all&dlock.maxttl=1h", "redlock://a,a:6379,b", "redlock://", "redlock://a?dlock.need=x",
	} {
		f.Add(u)
	}
	f.Fuzz(func(t *testing.T, text string) {
		u, err := backend.ParseURL(text)
		if err != nil {
			return
		}
		u.User, u.Password = "user", backend.NewSecret(canary)
		hosts := len(u.Hosts)
		o, err := takeOptions(backend.Config{URL: u})
		if err == nil {
			_, err = o.need(hosts)
		}
		if err == nil {
			for _, one := range u.Each("redis") {
				if len(one.Hosts) != 1 || one.Password.Reveal() != canary || strings.Contains(one.String(), canary) {
					t.Errorf("a node of %q is %v", text, one)
				}
			}
		}
		if err != nil && (!errors.Is(err, backend.ErrInvalidConfig) || strings.Contains(err.Error(), canary)) {
			t.Errorf("%v", err)
		}
	})
}
