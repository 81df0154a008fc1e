package redis

import (
	"context"
	"net"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/backend"
)

// checkAccess tries whether a server lets in who gives no password.
func checkAccess(ctx context.Context, c redis.UniversalClient) []backend.Finding {
	const subject = "access"
	client, ok := c.(*redis.Client)
	if !ok {
		return nil
	}
	o := *client.Options()
	o.Username, o.Password, o.CredentialsProvider, o.CredentialsProviderContext, o.StreamingCredentialsProvider = "", "", nil, nil, nil
	o.PoolSize, o.MinIdleConns = 1, 0
	stranger := redis.NewClient(&o)
	defer stranger.Close()
	err := stranger.Ping(ctx).Err()
	switch {
	case err != nil && kindOf(err) == backend.ErrAuth:
		return []backend.Finding{backend.Good(subject, "nothing is allowed without a password")}
	case err != nil:
		return nil // another finding has it
	}
	if isRemote(localAddress(ctx, client)) || admitsOthers(ctx, client) {
		return []backend.Finding{backend.Warn(subject, "whoever reaches the server gets in without a password, and can take every lock away",
			"set requirepass, or give each program a user with rights of its own and switch off the user default")}
	}
	return []backend.Finding{backend.Good(subject, "no password is needed on the server's own machine")}
}

// localAddress is the one at which the server has taken our connection, if it tells, and
// else the one that we have called.
func localAddress(ctx context.Context, c *redis.Client) string {
	text, _ := c.Do(ctx, "client", "info").Text()
	for _, field := range strings.Fields(text) {
		if address, ok := strings.CutPrefix(field, "laddr="); ok {
			return address
		}
	}
	return c.Options().Addr
}

// isRemote reports whether an address, with its port, is one that other machines can reach.
func isRemote(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil || host == "localhost" || host == "" {
		return false // a socket, or a Sentinel's name of a master
	}
	ip := net.ParseIP(host)
	return ip == nil || !ip.IsLoopback()
}

// admitsOthers reports whether a server takes connections of other machines without a
// password. One that does not show its settings is thought not to.
func admitsOthers(ctx context.Context, c *redis.Client) bool {
	protected := c.ConfigGet(ctx, "protected-mode").Val()["protected-mode"]
	bound, known := c.ConfigGet(ctx, "bind").Val()["bind"]
	if protected != "no" || !known {
		return false
	}
	addresses := strings.Fields(bound)
	return len(addresses) == 0 || slices.ContainsFunc(addresses, func(address string) bool {
		ip := net.ParseIP(strings.TrimPrefix(address, "-"))
		return ip == nil || !ip.IsLoopback() // such as *
	})
}
