package simulation

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Redis 6.2 is the oldest version that the library supports. It knows no commands that only read in
// scripts, and no channels of a shard, and tells an error that ends a script within another one.

// versions has servers of a part of the plans be of Redis 6.2: all of them, or some. As a replica takes
// over, the version of a master changes with it, as where servers are upgraded one after the other.
func (g *generator) versions() {
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 175))}
	p := g.plan
	if p.Backend == "memory" || p.Shelves || p.Fresh || !g.often(20) {
		return // on new servers of a quorum, a question counts as use there: it has to be EVAL
	}
	if p.Cluster && p.TTL >= 10*time.Minute {
		return // who waits would ask twenty times a second, for hours: nobody is told there
	}
	masters := max(p.Servers, p.shards())
	all := masters
	if p.Replica {
		all *= 2
	}
	of := pick(g.draw, "all", "masters", "replicas", "some")
	for i := range all {
		if of == "all" || of == "masters" && i < masters || of == "replicas" && i >= masters || of == "some" && g.often(50) {
			p.Old = append(p.Old, i)
		}
	}
	if p.Replica && len(p.Faults) > 0 && g.often(50) {
		g.upgrades()
	}
}

// upgrades has replicas take over from their masters, and some of these come back.
func (g *generator) upgrades() {
	p := g.plan
	place, way := 0, g.IntN(3)
	if p.Cluster {
		place = g.shard()
	}
	for range 1 + g.IntN(3) {
		p.Faults = append(p.Faults, Fault{Kind: "failover", At: g.within(0, p.Length), Client: -1, Server: place, Way: way})
	}
}

// listens reports whether a client is told by messages: nobody is by a cluster with nodes that know no
// channels of a shard.
func (p *Plan) listens(client int) bool {
	return !p.Clients[client].Poll && (!p.Cluster || len(p.Old) == 0)
}

// version is what a server says that it is of.
func (s *server) version() string {
	if s.ancient {
		return "6.2.14"
	}
	return "7.4.0"
}

// age has a server be of Redis 6.2.
func (s *server) age() { s.ancient, s.old, s.lua.ancient = true, true, true }

// laterCommands are those that Redis 6.2 does not know.
var laterCommands = []string{"EVAL_RO", "EVALSHA_RO", "SPUBLISH", "SSUBSCRIBE", "SUNSUBSCRIBE"}

// knows reports whether a server knows a command.
func (s *server) knows(cmd string) bool { return !s.ancient || !slices.Contains(laterCommands, cmd) }

// errUnknown is what Redis 6.2 says of a command that it does not know.
func errUnknown(cmd string, args []string) error {
	text := "ERR unknown command `" + strings.ToLower(cmd) + "`, with args beginning with: "
	most := len(text) + 128
	for _, a := range args {
		if len(text) < most {
			text += "`" + a[:min(len(a), most-len(text))] + "`, "
		}
	}
	return replyError(strings.NewReplacer("\r", " ", "\n", " ").Replace(text))
}

// beforeIt are the words of errors with which a server refuses a command of a script before it
// executes that.
var beforeIt = []string{"READONLY ", "OOM ", "MISCONF ", "NOREPLICAS "}

// inOldWords is what Redis 6.2 says of what a command of a script has met at a line.
func inOldWords(err error, line string) string {
	said := err.Error()
	switch {
	case slices.ContainsFunc(beforeIt, func(word string) bool { return strings.HasPrefix(said, word) }):
		said = "-" + said
	case err == errNoChannels:
		said = "The user executing the script can't publish to the channel mentioned in the command"
	case strings.HasPrefix(said, "ERR ACL failure in script"):
		said = "The user executing the script can't run this command or subcommand"
	case err == errNotHere, err == errCrossHere:
		said = "Lua script attempted to access a non local key in a cluster node"
	case err == errDownHere:
		said = "Lua script attempted to execute a command while the cluster is down"
	case strings.HasPrefix(said, "ERR unknown command"):
		said = "Unknown Redis command called from Lua script"
	default: // it was executed
		return said
	}
	return fmt.Sprintf("@user_script: %s: %s", line, said)
}

// endsInOldWords is what Redis 6.2 says of a script that such an error has ended.
func endsInOldWords(digest, said, line string) error {
	return replyError(fmt.Sprintf("ERR Error running script (call to f_%s): @user_script:%s: %s", digest, line, said))
}
