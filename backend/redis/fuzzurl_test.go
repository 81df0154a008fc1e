package redis

import (
	"errors"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/backend"
)

// FuzzURL makes clients of URLs: what is wrong has a kind, and does not show the password.
func FuzzURL(f *testing.F) {
	const canary = "c4n4ry-in-a-url"
	for _, u := range []string{
		"redis://u:p@h:1/2?read_timeout=3s", "unix:///tmp/x.sock?db=1", "rediss+sentinel://h,h2/master/1?sentinel_password=x",
		"redis+cluster://[::1]:7000,h?pool_size=3", "redis://h/x", "redis://h?pool_size=-1", "redis://h?dlock.keep=1", "valkeys://h?skip_verify=true",
	} {
		f.Add(u)
	}
	f.Fuzz(func(t *testing.T, text string) {
		u, err := backend.ParseURL(text)
		if err != nil {
			return
		}
		u.User, u.Password = "user", backend.NewSecret(canary)
		s, ok := schemes[u.Scheme]
		if !ok {
			return
		}
		cfg := backend.Config{URL: u}
		_, err = parseOptions(cfg)
		if err == nil {
			var c redis.UniversalClient
			if c, err = s.newClient(cfg, s.name); err == nil {
				_ = c.Close()
			}
		}
		if err != nil && (!errors.Is(err, backend.ErrInvalidConfig) || strings.Contains(err.Error(), canary)) {
			t.Errorf("%v", err)
		}
	})
}
