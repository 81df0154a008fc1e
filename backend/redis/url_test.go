package redis

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/server"
)

func TestBadTopologyURLs(t *testing.T) {
	const canary = "c4n4ry"
	for url, want := range map[string]string{
		"redis+cluster://":                                         "host,host",
		"redis+cluster://h/0":                                      "one database",
		"redis+cluster://h?addr=x":                                 `unknown parameter "addr"`,
		"redis+cluster://h?read_only=1":                            `unknown parameter "read_only"`,
		"redis+cluster://h?nonsense=1":                             "nonsense",
		"redis+cluster://h?pool_size=" + canary:                    "parameter",
		"redis+cluster://h?pool_size=-5":                           "pool_size",
		"redis+sentinel://h/m?pool_size=99999999999":               "pool_size",
		"redis://h?pool_size=-5":                                   "pool_size",
		"redis://h/2?db=3":                                         "parameter db",
		"redis+sentinel://h":                                       "name-of-the-master",
		"redis+sentinel:///m":                                      "host,host",
		"redis+sentinel://h/m/x":                                   "database",
		"redis+sentinel://h/m/0/1":                                 "path",
		"redis+sentinel://h/m?replica_only=1":                      `unknown parameter "replica_only"`,
		"redis+sentinel://h/m?password=" + canary:                  `unknown parameter "password"`,
		"redis+sentinel://h/m?nonsense=1":                          "nonsense",
		"redis+sentinel://u:" + canary + "@h":                      "name-of-the-master",
		"redis+sentinel://h?sentinel_password=" + canary:           "name-of-the-master",
		"redis+sentinel://h/m?dlock.wake=" + canary:                "dlock.wake",
		"redis+cluster://h?dial_timeout=" + canary + "&nonsense=1": "parameter",
	} {
		_, err := dlock.Open(t.Context(), url, nil)
		if !errors.Is(err, dlock.ErrInvalidConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", url, err, want)
		} else if strings.Contains(err.Error(), canary) {
			t.Errorf("%s: a secret in %v", url, err)
		}
	}
}

// TestURLsOfAnotherTopology opens servers as what they are not.
func TestURLsOfAnotherTopology(t *testing.T) {
	t.Parallel()
	w, _ := startWatched(t, 1)
	c, _ := startCluster(t, server.Redis{})
	for url, want := range map[string]error{
		strings.TrimSuffix(sentinelURL(w), server.PrimaryName) + "nosuch": dlock.ErrInvalidConfig,
		"redis+sentinel://" + shared.Addr() + "/m":                        dlock.ErrUnavailable,
		"redis+cluster://" + shared.Addr():                                dlock.ErrInvalidConfig,
		"redis+cluster://" + w.Sentinels[0].Addr():                        dlock.ErrUnavailable,
		"redis://" + c.Masters[0].Addr():                                  dlock.ErrInvalidConfig,
		"redis://" + c.Replicas[0].Addr():                                 dlock.ErrInvalidConfig,
		"redis://" + shared.Addr() + "/99":                                dlock.ErrInvalidConfig,
	} {
		client, err := dlock.Open(within(t), url, nil)
		if err == nil {
			_ = client.Close(context.Background())
		}
		if !errors.Is(err, want) {
			t.Errorf("%s: %v", url, err)
		}
	}
}
