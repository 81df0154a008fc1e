package redis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/backend"
)

// clusterSlots is how many slots the keys of a cluster are in.
const clusterSlots = 16384

// examineCluster looks at the cluster as one of its nodes sees it, and at every master.
func (b *Backend) examineCluster(ctx context.Context, report func(backend.Finding)) error {
	c := b.cluster.client
	all(checkSlots(c.ClusterInfo(ctx).Result()), report)
	all(checkNodes(c.ClusterNodes(ctx).Result()), report)
	var mu sync.Mutex
	return b.cluster.eachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		addr := node.Options().Addr
		locked := func(f backend.Finding) {
			mu.Lock()
			defer mu.Unlock()
			f.Text = addr + ": " + f.Text
			report(f)
		}
		err := b.examineServer(ctx, node, locked)
		if errors.Is(err, backend.ErrInvalidConfig) || err != nil && ctx.Err() != nil {
			return err
		}
		if err != nil {
			locked(backend.Bad("nodes", "no lock in the slots of this master works: "+err.Error(), "start it, or mend the way to it"))
		}
		return nil
	})
}

// checkSlots reads CLUSTER INFO.
func checkSlots(text string, err error) []backend.Finding {
	const subject = "slots"
	if err != nil {
		return []backend.Finding{backend.Good(subject, "the nodes do not tell (CLUSTER INFO)")}
	}
	i := parseInfo(text)
	served := i.number("cluster_slots_ok")
	switch {
	case served < clusterSlots:
		return []backend.Finding{backend.Bad(subject, fmt.Sprintf("%d of %d slots have no master that answers: their locks cannot be taken", clusterSlots-served, clusterSlots),
			"start the nodes that are down, and see redis-cli --cluster check")}
	case i["cluster_state"] != "ok":
		return []backend.Finding{backend.Bad(subject, "the cluster is down: "+i["cluster_state"], "see redis-cli --cluster check")}
	}
	return []backend.Finding{backend.Good(subject, "every slot has a master")}
}

// checkNodes reads CLUSTER NODES.
func checkNodes(text string, err error) (out []backend.Finding) {
	const subject = "nodes"
	if err != nil {
		return []backend.Finding{backend.Good(subject, "the nodes do not tell (CLUSTER NODES)")}
	}
	n := 0
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 8 {
			continue
		}
		n++
		addr, _, _ := strings.Cut(fields[1], "@")
		flags := strings.Split(fields[2], ",")
		if slices.Contains(flags, "fail") || slices.Contains(flags, "fail?") {
			out = append(out, backend.Warn(subject, addr+" does not answer the other nodes", "start it, or have the others forget it (redis-cli --cluster del-node)"))
		}
	}
	if len(out) == 0 {
		out = append(out, backend.Good(subject, fmt.Sprintf("all %d answer one another", n)))
	}
	return out
}

// checkSentinels asks each of the Sentinels that a client with options o asks for the
// master; o is nil if there are none.
func checkSentinels(ctx context.Context, o *redis.FailoverOptions) (out []backend.Finding) {
	const subject = "sentinels"
	if o == nil {
		return nil
	}
	ctx, cancel := backend.Bound(ctx, backend.FirstAnswer)
	defer cancel()
	n := len(o.SentinelAddrs)
	states, errs := make([]info, n), make([]error, n)
	var asked sync.WaitGroup
	for i, addr := range o.SentinelAddrs {
		asked.Go(func() {
			c := redis.NewSentinelClient(&redis.Options{
				Addr: addr, Username: o.SentinelUsername, Password: o.SentinelPassword,
				TLSConfig: o.TLSConfig, Dialer: o.Dialer, DialTimeout: o.DialTimeout, ReadTimeout: o.ReadTimeout,
				MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true, DisableIdentity: true,
			})
			defer c.Close()
			states[i], errs[i] = c.Master(ctx, o.MasterName).Result()
			if _, noQuorum := replyOf(c.CkQuorum(ctx, o.MasterName).Err()); noQuorum && errs[i] == nil {
				states[i]["no quorum"] = "1"
			}
		})
	}
	asked.Wait()
	for i, addr := range o.SentinelAddrs {
		if errs[i] != nil {
			out = append(out, backend.Warn(subject, addr+": "+errs[i].Error(), "start it, or take it out of the URL"))
			continue
		}
		out = append(out, checkSentinel(addr, states[i])...)
		if named := mostNamed(states); !states[i].isMaster(named) {
			out = append(out, backend.Warn(subject, fmt.Sprintf("%s: it says that the master is %s, and others %s: clients that ask it use that one, also if nothing answers there",
				addr, states[i].master(), named.master()), "have it watch the same master (SENTINEL REMOVE, then MONITOR), or stop it and take it out of the URL"))
		}
	}
	if len(out) == 0 {
		out = append(out, backend.Good(subject, fmt.Sprintf("all %d answer, and may promote a replica", n)))
	}
	return out
}

// mostNamed is what one of the Sentinels tells whose master most of them name.
func mostNamed(states []info) (named info) {
	most := 0
	for _, s := range states {
		same := 0
		for _, o := range states {
			if len(o) > 0 && s.isMaster(o) {
				same++
			}
		}
		if len(s) > 0 && same > most {
			named, most = s, same
		}
	}
	return named
}

// isMaster reports whether two Sentinels tell of one master: each may have a name of its own for it.
func (i info) isMaster(o info) bool {
	return i.master() == o.master() || i["runid"] != "" && i["runid"] == o["runid"]
}

func (i info) master() string { return net.JoinHostPort(i["ip"], i["port"]) }

// checkSentinel says what is not as it should be of a Sentinel that tells this of the
// master.
func checkSentinel(addr string, state info) (out []backend.Finding) {
	const subject = "sentinels"
	n, quorum := state.number("num-other-sentinels")+1, state.number("quorum")
	switch {
	case n < 3:
		out = append(out, backend.Warn(subject, addr+": "+strconv.FormatInt(n, 10)+" of them watch the master: when one is away no replica is promoted", "run three Sentinels, on a machine each"))
	case quorum > n:
		out = append(out, backend.Warn(subject, fmt.Sprintf("%s: %d have to miss the master, and there are %d: no replica is ever promoted", addr, quorum, n), "lower the quorum (SENTINEL SET)"))
	case quorum <= n/2:
		out = append(out, backend.Warn(subject, fmt.Sprintf("%s: %d of %d that miss the master are enough to replace it, although most may reach it", addr, quorum, n), "set the quorum to a majority (SENTINEL SET)"))
	}
	switch {
	case state["no quorum"] != "" && quorum <= n:
		out = append(out, backend.Warn(subject, addr+": too few others answer it to promote a replica", "start the Sentinels that are down"))
	case strings.Contains(state["flags"], "_down"):
		out = append(out, backend.Warn(subject, addr+": it does not reach the master", "mend the way between them"))
	}
	return out
}
