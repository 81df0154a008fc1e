package simulation

import (
	"strings"
	"sync"
	"testing"
	"time"
)

// A server of Redis 6.2 says what one of 6.2.14 has said of the same scripts.
func TestWordsOfRedis6(t *testing.T) {
	const write = "return redis.call('HSET','k','a','b')"
	for _, c := range []struct {
		state, script, want string
	}{
		{"", "local x\nx=1\nreturn redis.call('SPUBLISH','s','a')", "(script): @user_script:3: @user_script: 3: Unknown Redis command called from Lua script"},
		{"", "return redis.pcall('SPUBLISH','s','a')", "@user_script: 1: Unknown Redis command called from Lua script"},
		{"", "return redis.pcall('PUBSUB','shardnumsub','a')", "ERR Unknown subcommand or wrong number of arguments for 'shardnumsub'. Try PUBSUB HELP."},
		{"wrong type", write, "(script): @user_script:1: WRONGTYPE Operation against a key holding the wrong kind of value"},
		{"replica", write, "(script): @user_script:1: @user_script: 1: -READONLY You can't write against a read only replica."},
		{"replica", "return redis.pcall('HSET','k','a','b')", "@user_script: 1: -READONLY You can't write against a read only replica."},
		{"full", write, "(script): @user_script:1: @user_script: 1: -OOM command not allowed when used memory > 'maxmemory'."},
		{"no replicas", write, "(script): @user_script:1: @user_script: 1: -NOREPLICAS Not enough good replicas to write."},
		{"denied", write, "(script): @user_script:1: @user_script: 1: The user executing the script can't run this command or subcommand"},
	} {
		s := newServer(0, 0, new(sync.Map), func(*server, string, truth) {}, func(string) {})
		s.age()
		end := time.Now().Add(time.Hour)
		switch c.state {
		case "replica":
			s.master = s
		case "full":
			s.faults.full = end
		case "no replicas":
			s.unfollow(end)
		case "denied":
			s.faults.inside = end
		case "wrong type":
			if _, err := s.do([]string{"ZADD", "k", "1", "a"}); err != nil {
				t.Fatal(err)
			}
		}
		_, err := s.lua.run(sha(c.script), c.script, []string{"k"}, nil)
		want := strings.Replace(c.want, "(script)", "ERR Error running script (call to f_"+sha(c.script)+")", 1)
		if err == nil || err.Error() != want {
			t.Errorf("%s, %s:\n%v\n%s", c.state, c.script, err, want)
		}
		s.close()
	}
}

// Requests are answered by a master of Redis 6.2, and by a replica of 7 that takes over from it, and the
// other way round, in a cluster and beside it.
func TestVersionsMixed(t *testing.T) {
	works := Party{Workers: [][]Op{{}}}
	for range 30 {
		works.Workers[0] = append(works.Workers[0], Op{Pause: time.Second, Call: "lock", Names: []int{0}, Hold: 500 * time.Millisecond, Unlock: "live"},
			Op{Call: "inspect", Names: []int{0}})
	}
	shard := homeOf(slotOf(lockKey("a")))
	for name, c := range map[string]struct {
		cluster bool
		place   int
		old     []int
	}{
		"all": {old: []int{0, 1}}, "the master": {old: []int{0}}, "the replica": {old: []int{1}},
		"all of a cluster": {true, shard, []int{0, 1, 2, 3, 4, 5}}, "the masters of one": {true, shard, []int{0, 1, 2}}, "the replicas of one": {true, shard, []int{3, 4, 5}},
	} {
		r := Run(t, &Plan{
			Backend: "redis", Servers: 1, Latency: time.Millisecond, Names: 1, TTL: 10 * time.Second, Length: length, Replica: true, Lag: time.Millisecond,
			Cluster: c.cluster, Old: c.old, Clients: []Party{works, works, works},
			Faults: []Fault{
				{Kind: "failover", At: 20 * time.Second, Client: -1, Server: c.place, Way: 2},
				{Kind: "failover", At: 40 * time.Second, Client: -1, Server: c.place, Way: 2},
			},
		})
		if len(r.Violations) > 0 || r.Grants != 90 {
			t.Errorf("%s: %d grants, %v\n%s", name, r.Grants, r.Violations, r.Table(3))
		}
	}
}
