package redis

import (
	"context"
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"regexp"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/*.lua
var sources embed.FS

var (
	acquireScript   = load("acquire")
	releaseScript   = load("release")
	renewScript     = load("renew")
	enterScript     = load("enter")
	downgradeScript = load("downgrade")
	checkScript     = load("check")
	probeScript     = load("probe")
)

// A script is one request to the server.
type script struct {
	source string
	sha    string
}

var include = regexp.MustCompile(`(?m)^-- include (\w+)$`)

func load(name string) *script {
	src := include.ReplaceAllStringFunc(read(name), func(line string) string {
		return read(strings.TrimPrefix(line, "-- include "))
	})
	return newScript(src)
}

func newScript(src string) *script {
	sum := sha1.Sum([]byte(src))
	return &script{source: src, sha: hex.EncodeToString(sum[:])}
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

// run executes s once, whatever becomes of the reply. After an error that is
// no reply of the server the outcome is unknown.
func (b *Backend) run(ctx context.Context, limit time.Duration, s *script, keys, args []any) (answer, error) {
	a := answer{sent: time.Now()}
	reply, err := b.wire.do(ctx, limit, command(ctx, "evalsha", s.sha, keys, args))
	if redis.HasErrorPrefix(err, "NOSCRIPT") { // proof that it has not run
		a.sent = time.Now()
		reply, err = b.wire.do(ctx, limit, command(ctx, "eval", s.source, keys, args))
	}
	a.values, _ = reply.([]any)
	return a, err
}

func command(ctx context.Context, name, script string, keys, args []any) *redis.Cmd {
	all := make([]any, 0, 3+len(keys)+len(args))
	all = append(all, name, script, len(keys))
	all = append(all, keys...)
	return redis.NewCmd(ctx, append(all, args...)...)
}
