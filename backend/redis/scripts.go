package redis

import (
	"context"
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/backend"
)

//go:embed lua/*.lua
var sources embed.FS

// A script is one request to the server.
type script struct {
	source  any
	sha     any
	sharded *script // the same for a cluster; nil: this one
	kind    kind
}

var (
	grabScript      = loadAs(joinable, "grab")
	acquireScript   = loadAs(durable, "acquire")
	voteScript      = loadAs(durable, "vote")
	announceScript  = load("announce")
	raiseScript     = load("raise")
	dropScript      = loadAs(joinable, "drop")
	releaseScript   = load("release")
	expireScript    = load("expire")
	downgradeScript = load("downgrade")
	checkScript     = load("check")
	tellScript      = load("tell")
	renewScript     = loadAs(durable, "renew")
	enterScript     = load("enter")
	probeScript     = load("probe")
)

var include = regexp.MustCompile(`(?m)^ *-- include (\w+)$`)

// load makes a script of a file. One that tells clients something has another
// form for clusters.
func load(name string) *script {
	s := newScript(expand(name, nil))
	sharded := newScript(expand(name, strings.NewReplacer("-- include wake\n", "-- include wakeshard\n")))
	if sharded.sha != s.sha {
		s.sharded = sharded
	}
	return s
}

func loadAs(k kind, name string) *script {
	s := load(name)
	s.kind = k
	if s.sharded != nil {
		s.sharded.kind = k
	}
	return s
}

// expand is the source of a script with all that it includes.
func expand(name string, r *strings.Replacer) string {
	src := read(name)
	if r != nil {
		src = r.Replace(src)
	}
	return include.ReplaceAllStringFunc(src, func(line string) string {
		return expand(strings.TrimPrefix(strings.TrimLeft(line, " "), "-- include "), r)
	})
}

func newScript(src string) *script {
	sum := sha1.Sum([]byte(src))
	return &script{source: src, sha: hex.EncodeToString(sum[:])}
}

// call is the command that runs s, for any number of times.
func (s *script) call(keys []any, args ...any) []any {
	all := make([]any, 0, 3+len(keys)+len(args))
	all = append(all, "evalsha", s.sha, len(keys))
	all = append(all, keys...)
	return append(all, args...)
}

// of is the command that runs s with the first n keys of a lock.
func (s *script) of(k key, n int, args ...any) []any {
	if n > 1 {
		return s.call(k.args(n), args...)
	}
	return append(append(make([]any, 0, 4+len(args)), "evalsha", s.sha, 1, string(k)), args...)
}

func read(name string) string {
	src, err := sources.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic("dlock: no script " + name)
	}
	return string(src)
}

// An answer is what a script replied: what goes without saying as one number,
// for that is cheap, and everything else as a list. Sent is from before the
// request left.
type answer struct {
	sent   time.Time
	plain  bool // it was a number
	number int64
	values []any
}

// isZero reports whether it was the number 0.
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
func (a answer) millis(i int) time.Duration { return ofMillis(a.int(i)) }

func ofMillis(n int64) time.Duration {
	return time.Duration(min(max(n, 0), backend.MaxTTL.Milliseconds())) * time.Millisecond
}

// lasting is the time from a moment of the server, in µs, to another one in ms. Of two
// that are further apart than clocks or leases could bring them it is cut short.
func lasting(us, expiry int64) time.Duration {
	const most = int64(2 * backend.MaxTTL / time.Microsecond)
	return time.Duration(min(max(expiry*1000-us, -most), most)) * time.Microsecond
}

func (a answer) at(i int) any {
	if i >= len(a.values) {
		return nil
	}
	return a.values[i]
}

// run executes a call of s once, whatever becomes of the reply. After an error
// that is no reply of the server the outcome is unknown.
func (b *Backend) run(ctx context.Context, limit time.Duration, s *script, call []any) (answer, error) {
	s = b.script(s)
	if call[1] != s.sha { // else by an earlier try, which may still be on its way
		call[1] = s.sha
	}
	a := answer{sent: time.Now()}
	reply, err := b.transport.do(ctx, limit, call, s.kind)
	if unknownScript(err) {
		whole := slices.Clone(call)
		whole[0], whole[1] = "eval", s.source
		a.sent = time.Now()
		reply, err = b.transport.do(ctx, limit, whole, s.kind)
	}
	a.read(reply)
	if err == nil && !a.plain && a.values == nil {
		err = errGarbled
	}
	return a, err
}

// unknownScript reports that the server did not know a script. That is proof that
// it has not run.
func unknownScript(err error) bool { return err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") }

func (a *answer) read(reply any) {
	a.number, a.plain = reply.(int64)
	a.plain = a.plain && a.number <= exact
	a.values, _ = reply.([]any)
}
