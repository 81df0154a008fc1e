package redis

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/backend"
)

// CheckServer fails if the server does not answer or does not know us, and warns
// of what will make locks fail later. Opening a URL does it, unless the server is a
// member of a quorum: then that does.
func (b *Backend) CheckServer(ctx context.Context) error {
	ctx, cancel := backend.Bound(ctx, openTimeout)
	defer cancel()
	err := guard(func() error { return b.checkServers(ctx) })
	if errors.Is(err, errNonsense) {
		err = fail(err)
	}
	return err
}

func (b *Backend) checkServers(ctx context.Context) error {
	err := b.awaitReady(ctx)
	if errors.Is(err, redis.Nil) {
		return invalid("the Sentinels know no master of that name")
	}
	if err != nil {
		return fail(err)
	}
	b.checkScripts(ctx)
	if b.cluster == nil {
		return b.checkServer(ctx, b.client)
	}
	err = b.cluster.client.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		return b.checkServer(ctx, node)
	})
	if err != nil {
		return fail(err)
	}
	return nil
}

// checkServer fails only if what the server says of itself does not fit.
func (b *Backend) checkServer(ctx context.Context, c redis.Cmdable) error {
	info, err := c.Info(ctx, "memory", "replication", "cluster").Result()
	if err != nil {
		// Some servers know one section at a time, and some users none.
		info, _ = c.Info(ctx).Result()
	}
	if b.cluster == nil && strings.Contains(info, "cluster_enabled:1") {
		return invalid("the server is a node of a cluster: open it as redis+cluster")
	}
	found := serverWarnings(info)
	if b.member {
		config, err := c.ConfigGet(ctx, appendSettings).Result()
		save := c.ConfigGet(ctx, "save").Val()
		found = append(found, memoryLoss(config, save["save"], err)...)
	}
	for _, w := range found {
		b.log.Warn("dlock: " + w)
	}
	return nil
}

// memoryLoss says what a member of a quorum may have forgotten after a restart, by its
// settings.
func memoryLoss(config map[string]string, save string, err error) (out []string) {
	switch {
	case err != nil:
		return []string{"the server does not show its settings (CONFIG GET): after a restart it takes no part until every lease of before has run out"}
	case isDurable(config):
		return nil
	case save != "":
		out = append(out, "the server restarts with a snapshot of some time ago: its save points are "+save)
	}
	switch {
	case config["appendonly"] != "yes":
	case config["appendfsync"] == "always":
		out = append(out, "the server may restart without its last writes: no-appendfsync-on-rewrite is yes, and could be no")
	default:
		out = append(out, "the server may restart without its last writes: its appendfsync is "+config["appendfsync"]+", and could be always")
	}
	if len(out) > 0 {
		out = append(out, "after a restart the server takes no part until every lease of before has run out")
	}
	return out
}

// awaitReady pings the server while that is starting.
func (b *Backend) awaitReady(ctx context.Context) error {
	var last error
	err := backend.Poll(ctx, backend.Backoff{}, nil, func(ctx context.Context) (bool, error) {
		last = b.client.Ping(ctx).Err()
		if _, isReply := replyOf(last); isReply && isPassing(last) {
			return false, nil
		}
		return true, last
	})
	if last != nil {
		return last
	}
	return err
}

// checkScripts runs each command of the scripts once, on a lock that nobody
// knows.
func (b *Backend) checkScripts(ctx context.Context) {
	name := "probe:" + rand.Text()
	keys := lockKey(name)
	publish, numsub, channel := "publish", "numsub", channelPrefix+name
	if b.cluster != nil {
		publish, numsub, channel = "spublish", "shardnumsub", string(keys)+shardChannel+name
	}
	a, err := b.run(ctx, openTimeout, probeScript, probeScript.callWith(keys, 2, channel, publish, numsub))
	if err != nil {
		b.log.Warn("dlock: the server refuses scripts, no lock will work", "error", err)
		return
	}
	for _, denied := range a.values {
		b.log.Warn("dlock: the server refuses a command that locks need", "error", denied)
	}
}

// serverWarnings reads INFO and says what there is to be feared.
func serverWarnings(info string) []string {
	fields := make(map[string]string)
	for lines := bufio.NewScanner(strings.NewReader(info)); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), ":")
		fields[name] = strings.TrimSpace(value)
	}
	var out []string
	policy := fields["maxmemory_policy"]
	if policy != "" && policy != "noeviction" && fields["maxmemory"] != "0" {
		out = append(out, "the server may evict locks: its maxmemory-policy is "+policy+", and should be noeviction")
	}
	if fields["role"] == "slave" {
		if fields["slave_read_only"] == "1" {
			return append(out, "the server is a read-only replica, no lock will work")
		}
		out = append(out, "the server is a replica: its master does not know its locks")
	}
	return out
}
