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
)

//go:embed lua/*.lua
var sources embed.FS

// A script is one request to the server. One that may let somebody in is told
// first how to do that.
type script struct {
	source  any
	sha     any
	letsIn  bool
	durable bool // its caller counts on what it did
}

var (
	acquireScript   = loadDurable("acquire")
	voteScript      = loadDurable("vote")
	raiseScript     = load("raise")
	releaseScript   = load("release")
	downgradeScript = load("downgrade")
	checkScript     = load("check")
	renewScript     = loadDurable("renew")
	movingScript    = loadDurable("moving")
	enterScript     = load("enter")
	probeScript     = load("probe")
)

// lettingIn are the first arguments of a script that may let somebody in.
var lettingIn = [4]any{unattended.Milliseconds(), "publish", channelPrefix, keep.Milliseconds()}

var include = regexp.MustCompile(`(?m)^-- include (\w+)$`)

func load(name string) *script { return newScript(expand(name)) }

func loadDurable(name string) *script {
	s := load(name)
	s.durable = true
	return s
}

// expand is the source of a script with all that it includes.
func expand(name string) string {
	return include.ReplaceAllStringFunc(read(name), func(line string) string {
		return expand(strings.TrimPrefix(line, "-- include "))
	})
}

func newScript(src string) *script {
	sum := sha1.Sum([]byte(src))
	return &script{
		source: src,
		sha:    hex.EncodeToString(sum[:]),
		letsIn: strings.Contains(src, "channel prefix"),
	}
}

// call is the command that runs s, for any number of times.
func (s *script) call(keys []any, args ...any) []any {
	all := make([]any, 0, 3+len(keys)+len(lettingIn)+len(args))
	all = append(all, "evalsha", s.sha, len(keys))
	all = append(all, keys...)
	if s.letsIn {
		all = append(all, lettingIn[:]...)
	}
	return append(all, args...)
}

// shard has a call that may let somebody in publish where the lock's shard is.
func shard(call []any) {
	first := keyAt + call[keyAt-1].(int)
	if call[first+1] == "spublish" {
		return // by an earlier try, which may still be on its way
	}
	call[first+1] = "spublish"
	call[first+2] = call[keyAt].(string) + shardChannel
}

func read(name string) string {
	src, err := sources.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic("dlock: no script " + name)
	}
	return string(src)
}

// An answer is what a script replied. Sent is from before the request left.
type answer struct {
	sent   time.Time
	values []any
}

// status is the first value where that is a word.
func (a answer) status() string {
	s, _ := a.at(0).(string)
	return s
}

// int is the i-th value, 0 if there is no such number.
func (a answer) int(i int) int64 {
	n, _ := a.at(i).(int64)
	return n
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
	if b.nodes != nil && s.letsIn {
		shard(call)
	}
	a := answer{sent: time.Now()}
	reply, err := b.wire.do(ctx, limit, call, s.durable)
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") { // proof that it has not run
		whole := slices.Clone(call)
		whole[0], whole[1] = "eval", s.source
		a.sent = time.Now()
		reply, err = b.wire.do(ctx, limit, whole, s.durable)
	}
	a.values, _ = reply.([]any)
	return a, err
}
