package redis

import (
	"bufio"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/backend"
)

// CheckServer fails if the server does not answer or does not know us, and warns
// of what will make locks fail later. Opening a URL does it, unless the server is a
// member of a quorum: then that does.
func (b *Backend) CheckServer(ctx context.Context) error {
	ctx, cancel := backend.Bound(ctx, openTimeout)
	defer cancel()
	return b.examine(ctx, func() error {
		err := b.awaitMasters(ctx, func(ctx context.Context, c redis.UniversalClient) error {
			info, err := b.readInfo(ctx, c)
			if err == nil {
				b.warn(b.atOpening(ctx, c, info))
			}
			return err
		})
		if err == nil && !b.inspectOnly {
			b.warn(b.checkScripts(ctx))
		}
		return err
	})
}

// examine runs f, which asks through the client library, when the server is ready.
func (b *Backend) examine(ctx context.Context, f func() error) error {
	err := guard(func() error {
		if err := b.awaitReady(ctx); err != nil {
			return err
		}
		return f()
	})
	if err == nil || errors.Is(err, backend.ErrInvalidConfig) {
		return err
	}
	return fail(err)
}

// warn logs what is not as it should be.
func (b *Backend) warn(findings []backend.Finding) {
	for _, f := range findings {
		if f.Level > backend.OK {
			b.log.Warn("dlock: "+withoutArguments(f.Text), "advice", f.Advice)
		}
	}
}

// Examine implements backend.Examiner. It looks at every master of a cluster.
func (b *Backend) Examine(ctx context.Context, report func(backend.Finding)) error {
	discreetly := func(f backend.Finding) {
		f.Text = withoutArguments(f.Text)
		report(f)
	}
	return reportInTime(ctx, discreetly, func(report func(backend.Finding)) error {
		return b.examine(ctx, func() error { return b.examineAll(ctx, report) })
	})
}

func (b *Backend) examineAll(ctx context.Context, report func(backend.Finding)) error {
	if b.member && b.inspectOnly { // after the first script a server that nobody has used would not pass for that
		_ = announce(ctx, b.client) // the findings tell what is not allowed
	}
	if b.cluster == nil { // a master that has become a replica, to which a connection lives on, is not looked at
		b.leaveOldMasters(ctx)
	}
	all(b.checkScripts(ctx), report)
	all(b.checkSubscribe(ctx), report)
	all(checkSentinels(ctx, b.failover), report)
	if b.cluster == nil {
		return b.examineServer(ctx, b.client, report)
	}
	return b.examineCluster(ctx, report)
}

// reportInTime has f report until ctx ends, whatever f waits for; see inTime. It calls report
// itself, and not after it has returned.
func reportInTime(ctx context.Context, report func(backend.Finding), f func(report func(backend.Finding)) error) error {
	found, done := make(chan backend.Finding), make(chan error, 1)
	go func() {
		done <- f(func(x backend.Finding) {
			select {
			case found <- x:
			case <-ctx.Done():
			}
		})
	}()
	for {
		select {
		case x := <-found:
			report(x)
		case err := <-done:
			return err
		case <-ctx.Done():
			return fail(backend.Cause(ctx))
		}
	}
}

func all(findings []backend.Finding, report func(backend.Finding)) {
	for _, f := range findings {
		report(f)
	}
}

func (b *Backend) examineServer(ctx context.Context, c redis.UniversalClient, report func(backend.Finding)) error {
	before := time.Now()
	now, err := c.Time(ctx).Result()
	switch {
	case err == nil:
		report(checkClock(now, before, time.Now()))
	case kindOf(err) == backend.ErrAuth:
		report(backend.Warn("clock", "the server does not tell the time: "+err.Error(), "allow the user +time"))
	default:
		return err
	}
	info, err := b.readInfo(ctx, c)
	if err != nil {
		return err
	}
	all(b.atOpening(ctx, c, info), report)
	if len(info) == 0 {
		report(backend.Warn("info", "the server shows no INFO: nobody knows whether it evicts locks, is a replica, or forgets them at a restart", "allow the user +info"))
	} else {
		report(checkMemory(info))
		report(checkConnections(info))
		report(b.checkReplicas(info))
		if !b.member {
			report(checkPersistence(info))
		}
	}
	all(checkAccess(ctx, c), report)
	report(checkScan(c.Scan(ctx, 0, "", 1).Err()))
	return nil
}

// atOpening is what a client that opens looks at, too.
func (b *Backend) atOpening(ctx context.Context, c redis.Cmdable, info info) (out []backend.Finding) {
	if len(info) > 0 {
		out = append(out, checkVersion(info), checkEviction(info), checkRole(info))
	}
	if b.member {
		config, err := c.ConfigGet(ctx, appendSettings).Result()
		save := c.ConfigGet(ctx, "save").Val()
		out = append(out, memoryLoss(config, save["save"], err)...)
	}
	return out
}

// An info is what a server says of itself: the fields of INFO.
type info map[string]string

// readInfo fails if what the server says of itself does not fit.
func (b *Backend) readInfo(ctx context.Context, c redis.Cmdable) (info, error) {
	text, err := c.Info(ctx, "server", "clients", "memory", "replication", "persistence", "cluster").Result()
	if err != nil {
		// Some servers know one section at a time, and some users none.
		text, _ = c.Info(ctx).Result()
	}
	fields := parseInfo(text)
	switch {
	case b.cluster == nil && fields["cluster_enabled"] == "1":
		return nil, invalid("the server is a node of a cluster: open it as redis+cluster")
	case fields["redis_mode"] == "sentinel", fields["server_mode"] == "sentinel": // the latter in Valkey
		return nil, invalid("the server is a Sentinel: open it as redis+sentinel, with the name of the master as the path")
	}
	return fields, nil
}

func parseInfo(text string) info {
	fields := make(info)
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), ":")
		fields[name] = strings.TrimSpace(value)
	}
	return fields
}

func (i info) number(field string) int64 {
	n, _ := strconv.ParseInt(i[field], 10, 64)
	return n
}

// checkVersion looks for a server that is too old for the scripts.
func checkVersion(i info) backend.Finding {
	const subject = "version"
	version, name := i["redis_version"], "Redis"
	if i["valkey_version"] != "" {
		version, name = i["valkey_version"], "Valkey"
	}
	var major, minor int
	_, err := fmt.Sscanf(version, "%d.%d", &major, &minor)
	switch {
	case err != nil:
		return backend.Good(subject, "the server does not tell its version")
	case name == "Redis" && (major < 6 || major == 6 && minor < 2):
		return backend.Bad(subject, "the server is Redis "+version+", which is too old", "use Redis 6.2 or later, or Valkey")
	}
	return backend.Good(subject, name+" "+version)
}

func checkEviction(i info) backend.Finding {
	const subject = "eviction"
	policy := i["maxmemory_policy"]
	switch {
	case policy == "":
		return backend.Good(subject, "the server does not tell what it evicts")
	case policy != "noeviction" && i["maxmemory"] != "0":
		return backend.Bad(subject, "a server whose memory is full evicts locks that are held, and grants them again: its maxmemory-policy is "+policy, "set maxmemory-policy to noeviction")
	}
	return backend.Good(subject, "no lock is evicted")
}

func checkRole(i info) backend.Finding {
	const subject = "role"
	switch {
	case i["role"] != "slave":
		return backend.Good(subject, "the server is a master")
	case i["slave_read_only"] == "1":
		return backend.Bad(subject, "the server is a read-only replica, no lock will work", useMaster)
	}
	return backend.Warn(subject, "the server is a replica: its master does not know its locks", useMaster)
}

// checkMemory warns of a server that is about to refuse writes.
func checkMemory(i info) backend.Finding {
	const subject = "memory"
	used, most := i.number("used_memory"), i.number("maxmemory")
	if most > 0 && used > most/10*9 {
		return backend.Warn(subject, fmt.Sprintf("%d %% of maxmemory are used: a full server grants no lock, and keeps those that are held", used*100/most),
			makeRoom)
	}
	return backend.Good(subject, "there is memory for more locks")
}

// checkConnections warns of a server that is about to refuse connections.
func checkConnections(i info) backend.Finding {
	const subject = "connections"
	used, most := i.number("connected_clients"), i.number("maxclients")
	text := fmt.Sprintf("%d of %d connections are in use: who finds none left gets no lock", used, most)
	switch {
	case most == 0:
		return backend.Good(subject, "the server does not tell how many connections it takes")
	case used >= most:
		return backend.Bad(subject, text, moreClients)
	case used > most/10*9:
		return backend.Warn(subject, text, moreClients)
	}
	return backend.Good(subject, fmt.Sprintf("%d of %d are in use", used, most))
}

// maxClockError is how far clocks may be apart: tokens follow the server's.
const maxClockError = time.Second

// checkClock compares the server's clock with ours, which was between before and after.
func checkClock(server, before, after time.Time) backend.Finding {
	const subject = "clock"
	off := max(before.Sub(server), server.Sub(after), 0)
	if off > maxClockError {
		return backend.Warn(subject, fmt.Sprintf("the server's clock and the one here are %v apart", off.Round(time.Millisecond)),
			"run NTP on all: tokens and the ends of leases are times of the server's clock, also when another server takes its place")
	}
	return backend.Good(subject, "the server's clock is right")
}

// checkReplicas compares the replicas there are with those that have to acknowledge.
func (b *Backend) checkReplicas(i info) backend.Finding {
	const subject = "replicas"
	want, have := int64(b.replicas), i.number("connected_slaves")
	switch {
	case b.cluster != nil && want == 0 && have == 0:
		return backend.Warn(subject, "this master has none: nobody takes its place when it dies", "add a replica (redis-cli --cluster add-node)")
	case i["role"] == "slave", want == 0 && have == 0:
		return backend.Good(subject, "there are none, and none are asked for")
	case have < want:
		return backend.Bad(subject, fmt.Sprintf("%d have to acknowledge each lock, and %d are connected", want, have), "start replicas, or lower dlock.replicas")
	case want == 0:
		return backend.Warn(subject, fmt.Sprintf("%d are connected, and none has to acknowledge a lock: a failover may forget the last ones", have),
			"set dlock.replicas=1, use fencing tokens, or a quorum of servers")
	}
	return backend.Good(subject, fmt.Sprintf("%d of %d have to acknowledge each lock", want, have))
}

// checkPersistence says what the server knows after a restart.
func checkPersistence(i info) backend.Finding {
	const subject = "restart"
	switch {
	case i["aof_enabled"] == "1":
		return backend.Good(subject, "locks outlive a restart of the server, but for those of the last second unless appendfsync is always")
	case i["aof_enabled"] == "":
		return backend.Good(subject, "the server does not tell what it keeps")
	}
	return backend.Warn(subject, "a server that restarts has forgotten locks that are held: appendonly is no", "set appendonly to yes, or use fencing tokens")
}

func checkScan(err error) backend.Finding {
	const subject = "names"
	if err != nil {
		return backend.Warn(subject, "the user may not list names: "+err.Error(), "allow it +scan, for dlock ls")
	}
	return backend.Good(subject, "names can be listed")
}

// checkSubscribe listens on a channel for a moment.
func (b *Backend) checkSubscribe(ctx context.Context) []backend.Finding {
	const subject = "messages"
	ctx, cancel := backend.Bound(ctx, openTimeout)
	defer cancel()
	channel := channelPrefix + "probe:" + rand.Text()
	listen, rights := b.client.Subscribe, "+subscribe +unsubscribe &dlock:*"
	if b.cluster != nil {
		channel, listen = string(lockKey("probe:"+rand.Text()))+shardChannel, b.client.SSubscribe
		rights = "+ssubscribe +sunsubscribe &dlock:*"
	}
	subscription := listen(ctx, channel)
	defer subscription.Close()
	if _, err := subscription.Receive(ctx); err != nil {
		advice := "see the other findings"
		switch said, isReply := replyOf(err); {
		case kindOf(err) == backend.ErrAuth:
			advice = "allow the user " + rights
		case isReply:
			advice = adviceOn(said)
		}
		return []backend.Finding{backend.Warn(subject, "no subscription: "+err.Error()+": who waits asks again and again", advice)}
	}
	return []backend.Finding{backend.Good(subject, "who waits is told")}
}

// memoryLoss says what a member of a quorum may have forgotten after a restart, by its
// settings.
func memoryLoss(config map[string]string, save string, err error) (out []backend.Finding) {
	const subject = "restart"
	const takesNoPart = "; after a restart it takes no part until every lease of before has run out"
	switch {
	case err != nil:
		return []backend.Finding{backend.Warn(subject, "the server does not show its settings (CONFIG GET)"+takesNoPart, "allow the user +config|get")}
	case isDurable(config):
		return []backend.Finding{backend.Good(subject, "the server has all locks after a restart")}
	case save != "":
		out = append(out, backend.Warn(subject, "the server restarts with a snapshot of some time ago: its save points are "+save+takesNoPart, `set save to ""`))
	}
	switch {
	case config["appendonly"] != "yes":
	case config["appendfsync"] == "always":
		out = append(out, backend.Warn(subject, "the server may restart without its last writes: no-appendfsync-on-rewrite is yes"+takesNoPart, "set no-appendfsync-on-rewrite to no"))
	default:
		out = append(out, backend.Warn(subject, "the server may restart without its last writes: its appendfsync is "+config["appendfsync"]+takesNoPart, "set appendfsync to always, or appendonly to no"))
	}
	if len(out) == 0 {
		out = append(out, backend.Good(subject, "the server is empty after a restart, and takes no part until every lease of before has run out"))
	}
	return out
}

// awaitReady pings the server while that is starting, and again where a connection broke while nobody
// used it. A client of a cluster may ask its nodes first what a command is, and goes by no context then.
func (b *Backend) awaitReady(ctx context.Context) error {
	var last error
	var again repeat
	err := backend.Poll(ctx, backend.Backoff{}, nil, func(ctx context.Context) (bool, error) {
		_, err := inTime(ctx, b.pingAny)
		if err == nil || last == nil || ctx.Err() == nil { // what a node has said tells more than that the time is over
			last = err
		}
		if _, isReply := replyOf(last); isReply && isPassing(last) || errors.Is(last, errNoMasters) || again.isStale(b, last) {
			return false, nil
		}
		return true, last
	})
	if errors.Is(last, redis.Nil) {
		return invalid("the Sentinels know no master of that name")
	}
	return cmp.Or(last, err)
}

// awaitMasters is eachMaster, and asks again where a node names none.
func (b *Backend) awaitMasters(ctx context.Context, do func(context.Context, redis.UniversalClient) error) error {
	for pauses := (backend.Backoff{}); ; {
		if err := b.eachMaster(ctx, do); !errors.Is(err, errNoMasters) || !backend.Sleep(ctx, pauses.Next()) {
			return err
		}
	}
}

// pingAny asks for no more than an answer. The client library finds nobody to ask where a node of a cluster
// has told it that there are no masters.
func (b *Backend) pingAny(ctx context.Context) (string, error) {
	if err := b.eachMaster(ctx, func(context.Context, redis.UniversalClient) error { return nil }); err != nil {
		return "", err
	}
	return b.client.Ping(ctx).Result()
}

// leaveOldMasters has the client library give up connections to a master that has become a replica,
// where the address stands for another server since: those of single commands, by which Examine asks.
func (b *Backend) leaveOldMasters(ctx context.Context) {
	for range b.idleConnections() {
		hello := &request{args: []any{"hello"}}
		_, err := inTime(ctx, func(ctx context.Context) (bool, error) {
			return process(ctx, b.client, []*request{hello}), nil
		})
		if err != nil || helloField(hello.reply, "role") != "replica" {
			return
		}
		_, _ = inTime(ctx, func(ctx context.Context) (bool, error) {
			leaveOldMaster(ctx, b.client, single)
			return true, nil
		})
	}
}

// checkScripts runs each command of the scripts once, on a lock that nobody
// knows.
func (b *Backend) checkScripts(ctx context.Context) (out []backend.Finding) {
	const subject = "scripts"
	name := "probe:" + rand.Text()
	keys := lockKey(name)
	publish, numsub, channel := "publish", "numsub", channelPrefix+name
	if b.cluster != nil {
		publish, numsub, channel = "spublish", "shardnumsub", string(keys)+shardChannel+name
	}
	a, err := b.run(ctx, openTimeout, probeScript, probeScript.callWith(keys, 2, channel, publish, numsub))
	if err != nil {
		advice := "see the other findings"
		if right := missingRight(err.Error(), "+eval +evalsha"); right != "" {
			advice = "allow the user " + right
		}
		return append(out, backend.Bad(subject, "the server runs no script, no lock will work: "+err.Error(), advice))
	}
	var denied, rights []string
	refused, words := make(map[string][]string), make(map[string]string) // by what to do about it
	for i := 0; i+1 < len(a.values); i += 2 {
		command, said := fmt.Sprint(a.values[i]), fmt.Sprint(a.values[i+1])
		if right := missingRight(said, "+"+command); right != "" {
			denied, rights = append(denied, command), append(rights, right)
			continue
		}
		advice := adviceOn(said)
		refused[advice], words[advice] = append(refused[advice], command), said
	}
	for _, advice := range slices.Sorted(maps.Keys(refused)) {
		out = append(out, backend.Bad(subject, "locks need "+listed(refused[advice], ", ")+", and the server refuses: "+words[advice], advice))
	}
	if len(denied) > 0 {
		out = append(out, backend.Bad(subject, "locks need what the user may not do: "+listed(denied, ", "), "allow the user "+listed(rights, " ")))
	}
	if len(out) == 0 {
		out = append(out, backend.Good(subject, "every command that locks need is allowed"))
	}
	return out
}

// What to do about a server, whichever check finds it out.
const (
	useMaster   = "use the address of its master, or Sentinel"
	makeRoom    = "raise maxmemory, or give locks a server of their own"
	moreClients = "raise maxclients, or end connections that nobody needs (CLIENT LIST)"
)

// listed are words in order, each once.
func listed(words []string, separator string) string {
	slices.Sort(words)
	return strings.Join(slices.Compact(words), separator)
}

// adviceOn is what to do about a server that refuses a command to everybody.
func adviceOn(said string) string {
	switch {
	case strings.Contains(said, "READONLY"):
		return useMaster
	case strings.Contains(said, "NOREPLICAS"):
		return "start the replicas that min-replicas-to-write asks for, or lower it"
	case strings.Contains(said, "OOM"):
		return makeRoom
	case strings.Contains(said, "max number of clients"):
		return moreClients
	}
	return "have the server allow it: the name of a command may have been changed in its configuration"
}

// missingRight is what a user lacks of whom the server said this about commands. It is
// empty if the server refuses for another reason.
func missingRight(said, commands string) string {
	switch {
	case !strings.Contains(said, "NOPERM") && !strings.Contains(said, "ermission") && !strings.Contains(said, "executing the script can't"):
		return ""
	case strings.Contains(said, " key"):
		return "~dlock:*"
	case strings.Contains(said, "channel"):
		return "&dlock:*"
	}
	return commands
}
