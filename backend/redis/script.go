package redis

import (
	"context"
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/backend"
)

//go:embed lua/*.lua
var sources embed.FS

// A script is one request to the server, in the dialect of most backends.
type script struct {
	name     string
	kind     kind
	source   string
	sha      string
	variants sync.Map // the same script in other dialects
}

// A dialect is how the scripts of a backend differ from those of others.
type dialect struct {
	cluster   bool          // clients are told by sharded messages
	announced bool          // each connection has been announced
	keep      time.Duration // for how long the key of a free lock stays
}

var (
	grabScript     = newScript("grab", joinable)
	grabVoteScript = newScript("grabvote", joinable)
	acquireScript  = newScript("acquire", durable)
	voteScript     = newScript("vote", durable)
	announceScript = newScript("announce", ordinary)
	tokenScript    = newScript("token", ordinary)
	dropScript     = newScript("drop", joinable)
	releaseScript  = newScript("release", ordinary)
	convertScript  = newScript("convert", ordinary)
	checkScript    = newScript("check", ordinary)
	renewScript    = newScript("renew", durable)
	enterScript    = newScript("enter", ordinary)
	probeScript    = newScript("probe", ordinary)
	breakScript    = newScript("break", ordinary)
	inspectScript  = newScript("inspect", reading)
)

func newScript(name string, k kind) *script { return compile(name, k, dialect{keep: defaultKeep}) }

func compile(name string, k kind, d dialect) *script {
	source := d.expand(name)
	sum := sha1.Sum([]byte(source))
	return &script{name: name, kind: k, source: source, sha: hex.EncodeToString(sum[:])}
}

// in returns s in a dialect.
func (s *script) in(d dialect) *script {
	if d == (dialect{keep: defaultKeep}) {
		return s
	}
	v, found := s.variants.Load(d)
	if !found {
		v, _ = s.variants.LoadOrStore(d, compile(s.name, s.kind, d))
	}
	return v.(*script)
}

var include = regexp.MustCompile(`(?m)^ *-- include (\w+)$`)

// expand returns the source of a script with all that it includes.
func (d dialect) expand(name string) string {
	switch {
	case name == "keep":
		return fmt.Sprintf("local keep, slack = %d, %d\n", millis(d.keep), millis(d.keep/10))
	case name == "publish" && d.cluster:
		name = "spublish"
	case name == "since" && d.announced:
		name = "announced"
	}
	source, err := sources.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic("dlock: no script " + name)
	}
	return include.ReplaceAllStringFunc(string(source), func(line string) string {
		return d.expand(strings.TrimPrefix(strings.TrimLeft(line, " "), "-- include "))
	})
}

// call is the command that runs s, for any number of times.
func (s *script) call(keys []any, args ...any) []any {
	all := make([]any, 0, firstKey+len(keys)+len(args))
	all = append(all, "evalsha", s.sha, len(keys))
	all = append(all, keys...)
	return append(all, args...)
}

// callWith is the command that runs s with the first n keys of a lock.
func (s *script) callWith(k key, n int, args ...any) []any { return s.call(k.args(n), args...) }

// whole is a call of s with its source.
func (s *script) whole(command string, call []any) []any {
	all := slices.Clone(call)
	all[0], all[1] = command, s.source
	return all
}

// run executes a call of s once, whatever becomes of the reply. After an error
// that is no reply of the server the outcome is unknown.
func (b *Backend) run(ctx context.Context, limit time.Duration, s *script, call []any) (answer, error) {
	if !b.used.Load() {
		b.used.Store(true)
	}
	d := b.dialect
	d.announced = b.isAnnounced()
	s = s.in(d)
	if call[1] != s.sha { // else by an earlier try, which may still be on its way
		call[1] = s.sha
	}
	a := answer{sent: time.Now()}
	first := call
	if s.kind == reading {
		first = s.whole("eval_ro", call)
	}
	reply, err := b.transport.do(ctx, limit, first, s.kind)
	if isUnknownScript(err) || s.kind == reading && isRefused(err) { // EVAL_RO is of Redis 7
		a.sent = time.Now()
		reply, err = b.transport.do(ctx, limit, s.whole("eval", call), s.kind)
	}
	a.read(reply)
	if err == nil && !a.plain && a.values == nil {
		err = errGarbled
	}
	return a, err
}

// runUntilAnswered repeats a call that may be repeated, for no longer than limit.
// onError, if not nil, is told each error after which the call is repeated.
func (b *Backend) runUntilAnswered(ctx context.Context, limit time.Duration, s *script, call []any, onError func(error)) (answer, error) {
	end := time.Now().Add(limit)
	var again repeat
	for {
		a, err := b.run(ctx, min(replyTimeout(limit), max(time.Until(end), time.Millisecond)), s, call)
		switch left := time.Until(end); {
		case err == nil:
			return a, nil
		case ctx.Err() != nil, isHopeless(err), left <= 0, !backend.Sleep(ctx, min(again.pause(b, err), left)):
			return a, fail(err)
		}
		if onError != nil {
			onError(err)
		}
	}
}

// A repeat says how soon to repeat a request. Connections that broke while nobody used them, as
// those that a firewall forgets, may not show that before each has failed a request, and those to
// a master that has become a replica live on: for each that was idle at the first of those
// failures, and for a new one, no pause is made.
type repeat struct {
	backoff backend.Backoff
	counted bool
	stale   int // how many requests may still fail so
}

// pause returns how long to wait after err.
func (r *repeat) pause(b *Backend, err error) time.Duration {
	if r.isStale(b, err) {
		return 0
	}
	return r.backoff.Next()
}

// isStale reports whether err may be that of such a connection.
func (r *repeat) isStale(b *Backend, err error) bool {
	if !isBroken(err) && !says(err, "READONLY") {
		return false
	}
	if !r.counted {
		r.counted, r.stale = true, b.idleConnections()+1
	}
	if r.stale == 0 {
		return false
	}
	r.stale--
	return true
}

// idleConnections is how many connections there are that nobody uses, of single commands and of
// pipelines.
func (b *Backend) idleConnections() int {
	stats := b.client.PoolStats()
	n := int(stats.IdleConns)
	if p := stats.PipelineStats; p != nil {
		n += int(p.IdleConns)
	}
	return n
}

// idlePipelines is how many of those a pipeline may be sent on.
func (b *Backend) idlePipelines() int {
	stats := b.client.PoolStats()
	if p := stats.PipelineStats; p != nil {
		return int(p.IdleConns)
	}
	return int(stats.IdleConns)
}

// replyTimeout is how long to wait for one reply before the request is repeated.
func replyTimeout(ttl time.Duration) time.Duration {
	return min(max(ttl/3, 250*time.Millisecond), 2*time.Second)
}

// isUnknownScript reports that the server did not know a script. That is proof that
// the script has not run.
func isUnknownScript(err error) bool { return err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") }

// An answer is what a script replied: one number where that says all, which costs the
// server least, and a list where it does not. Sent is from before the request left.
type answer struct {
	sent   time.Time
	plain  bool // it was a number
	number int64
	values []any
}

func (a *answer) read(reply any) {
	a.number, a.plain = reply.(int64)
	a.plain = a.plain && a.number <= exact
	a.values, _ = reply.([]any)
}

// isZero reports whether the answer was the number 0.
func (a answer) isZero() bool { return a.plain && a.number == 0 }

// status is the first value where that is a word.
func (a answer) status() string {
	s, _ := a.at(0).(string)
	return s
}

// int is the i-th value, 0 if there is no such number.
func (a answer) int(i int) int64 {
	n, _ := a.integer(i)
	return n
}

// integer is the i-th value, if that is a number. No script can mean one that is
// greater than a double is exact for.
func (a answer) integer(i int) (int64, bool) {
	n, ok := a.at(i).(int64)
	if !ok || n > exact || n < -exact {
		return 0, false
	}
	return n, true
}

const exact = 1 << 53

// millis is the i-th value as a time in ms: none that is negative, or longer than any
// lease.
func (a answer) millis(i int) time.Duration { return fromMillis(a.int(i)) }

func fromMillis(n int64) time.Duration {
	return time.Duration(min(max(n, 0), backend.MaxTTL.Milliseconds())) * time.Millisecond
}

// millis rounds up: a hold is never shorter than was asked for.
func millis(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

// between is the time from a moment of the server, in µs, to another one in ms. Of two
// that are further apart than clocks or leases could bring them it is cut short.
func between(us, expiry int64) time.Duration {
	const most = int64(2 * backend.MaxTTL / time.Microsecond)
	return time.Duration(min(max(expiry*1000-us, -most), most)) * time.Microsecond
}

func (a answer) at(i int) any {
	if i >= len(a.values) {
		return nil
	}
	return a.values[i]
}
