package redis

import (
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/server"
)

func TestMemoryLoss(t *testing.T) {
	config := func(log, sync string) map[string]string {
		return map[string]string{"appendonly": log, "appendfsync": sync, "no-appendfsync-on-rewrite": "no"}
	}
	mayNot := config("yes", "always")
	mayNot["no-appendfsync-on-rewrite"] = "yes"
	for _, c := range []struct {
		config   map[string]string
		save     string
		err      error
		warnings int
	}{
		{config("no", "everysec"), "", nil, 0},
		{config("no", "everysec"), "3600 1", nil, 1},
		{config("yes", "everysec"), "", nil, 1},
		{config("yes", "no"), "3600 1", nil, 2},
		{config("yes", "always"), "3600 1", nil, 0},
		{mayNot, "", nil, 1},
		{mayNot, "3600 1", nil, 2},
		{nil, "", errors.New("no permission"), 1},
	} {
		warnings := 0
		for _, f := range memoryLoss(c.config, c.save, c.err) {
			if f.Level > backend.OK {
				warnings++
			}
		}
		if warnings != c.warnings {
			t.Errorf("%v, %q, %v: %d warnings", c.config, c.save, c.err, warnings)
		}
	}
}

// warnings collects what a backend complains of.
type warnings struct {
	mu   sync.Mutex
	text strings.Builder
}

func (w *warnings) logger() *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }

func (w *warnings) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(b)
}

func (w *warnings) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

// TestExamineServers looks at servers that are well but for one thing.
func TestExamineServers(t *testing.T) {
	durable := server.Redis{AppendOnly: true}
	with := func(args ...string) server.Redis { return server.Redis{AppendOnly: true, Args: args} }
	for name, c := range map[string]struct {
		kind server.Redis
		url  string // behind the address
		do   []any
		want backend.Level
		also string // what else is not as it should be because of that
	}{
		"":         {kind: durable},
		"eviction": {kind: with("--maxmemory", "1gb", "--maxmemory-policy", "allkeys-lru"), want: backend.Fault},
		"clock":    {kind: durable, do: []any{"acl", "setuser", "default", "-time"}, want: backend.Warning, also: "scripts"},
		"info":     {kind: durable, do: []any{"acl", "setuser", "default", "-info"}, want: backend.Warning},
		"restart":  {kind: server.Redis{}, want: backend.Warning},
		"memory":   {kind: with("--maxmemory", "1000kb", "--maxmemory-policy", "noeviction"), want: backend.Warning, also: "scripts"},
		"replicas": {kind: durable, url: "?dlock.replicas=1", want: backend.Fault},
		"names":    {kind: durable, do: []any{"acl", "setuser", "default", "-scan"}, want: backend.Warning},
		"messages": {kind: durable, do: []any{"acl", "setuser", "default", "resetchannels"}, want: backend.Warning, also: "scripts"},
		"scripts":  {kind: durable, do: []any{"acl", "setuser", "default", "-hset"}, want: backend.Fault},
		"access":   {kind: with("--protected-mode", "no", "--bind", "127.0.0.1 -192.0.2.1"), want: backend.Warning},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := server.Start(t, c.kind)
			client := openURL(t, "redis://"+s.Addr()+c.url, nil)
			if c.do != nil {
				must[any](t)(plainClient(t, s).Do(within(t), c.do...).Result())
			}
			levels := make(map[string]backend.Level)
			must[any](t)(nil, client.Examine(within(t), func(f backend.Finding) { levels[f.Subject] = max(f.Level, levels[f.Subject]) }))
			if levels[name] != c.want {
				t.Errorf("%s is %v, want %v", name, levels[name], c.want)
			}
			for subject, level := range levels {
				if level > backend.OK && subject != name && subject != c.also {
					t.Errorf("%s is %v", subject, level)
				}
			}
			if len(levels) < 9 && name != "info" {
				t.Errorf("few subjects: %v", levels)
			}
		})
	}
}

// A server that takes no further connection is a fault, and the advice is not about rights.
func TestExamineFullServer(t *testing.T) {
	t.Parallel()
	s := server.Start(t, server.Redis{})
	client := openURL(t, "redis://"+s.Addr()+"?dlock.wake=poll", nil)
	must[string](t)(plainClient(t, s).ConfigSet(within(t), "maxclients", "1").Result())
	found := make(map[string]backend.Finding)
	must[any](t)(nil, client.Examine(within(t), func(f backend.Finding) { found[f.Subject] = f }))
	if f := found["connections"]; f.Level != backend.Fault || !strings.Contains(f.Text, " of 1 connections") || f.Advice != moreClients {
		t.Errorf("%+v", f)
	}
	if f := found["messages"]; f.Level != backend.Warning || strings.Contains(f.Advice, "allow") {
		t.Errorf("%+v", f)
	}
}

// Whether a stranger gets in is tried, whoever asks.
func TestExamineAccess(t *testing.T) {
	t.Parallel()
	access := func(s *server.Server, login string) (found backend.Finding) {
		must[any](t)(nil, openURL(t, "redis://"+login+s.Addr(), nil).Examine(within(t), func(f backend.Finding) {
			if f.Subject == "access" {
				found = f
			}
		}))
		return found
	}
	users := []string{"--user", "app", "on", ">secret", "~*", "&*", "+@all", "--protected-mode", "no", "--bind", "127.0.0.1 -192.0.2.1"}
	for name, c := range map[string]struct {
		args  []string
		login string
		want  backend.Level
	}{
		"a password":               {[]string{"--requirepass", "secret", "--protected-mode", "no", "--bind", "127.0.0.1 -192.0.2.1"}, ":secret@", backend.OK},
		"a user beside default":    {users, "app:secret@", backend.Warning},
		"a user and no default":    {append(users, "--user", "default", "off"), "app:secret@", backend.OK},
		"nobody, but of here only": {nil, "", backend.OK},
	} {
		if f := access(server.Start(t, server.Redis{Args: c.args}), c.login); f.Level != c.want || f.Text == "" {
			t.Errorf("%s: %+v", name, f)
		}
	}
	for address, want := range map[string]bool{
		"127.0.0.1:6379": false, "[::1]:6379": false, "localhost:6379": false, "/run/redis.sock": false, "FailoverClient": false,
		"10.0.0.7:6379": true, "redis.example:6379": true, "[fe80::1]:6379": true,
	} {
		if isRemote(address) != want {
			t.Errorf("%s", address)
		}
	}
}

// Who may do little is told of each right that is missing, and what to allow.
func TestExamineNamesEachMissingRight(t *testing.T) {
	t.Parallel()
	s := server.Start(t, server.Redis{})
	client := openURL(t, "redis://"+s.Addr(), nil)
	must[any](t)(plainClient(t, s).Do(within(t), "acl", "setuser", "default", "-time", "-info", "-scan", "-hset", "-zadd", "-pexpire", "-subscribe").Result())
	var said strings.Builder
	must[any](t)(nil, client.Examine(within(t), func(f backend.Finding) {
		if f.Level > backend.OK {
			said.WriteString(f.Text + f.Advice + "\n")
		}
	}))
	for _, right := range []string{"+time", "+info", "+scan", "+hset", "+zadd", "+pexpire", "+subscribe +unsubscribe &dlock:*"} {
		if !strings.Contains(said.String(), right) {
			t.Errorf("nothing is said of %s:\n%s", right, &said)
		}
	}
	if n := strings.Count(said.String(), " pexpire"); n != 1 {
		t.Errorf("pexpire is named %d times:\n%s", n, &said)
	}
}

// What a server refuses to everybody, for one reason, is one finding with what to do about it.
func TestExamineSaysOnceWhyCommandsAreRefused(t *testing.T) {
	t.Parallel()
	for advice, do := range map[string][]any{
		"use the address of its master": {"replicaof", "127.0.0.1", "1"},
		"min-replicas-to-write":         {"config", "set", "min-replicas-to-write", "1"},
	} {
		s := server.Start(t, server.Redis{})
		client := openURL(t, "redis://"+s.Addr(), nil)
		must[any](t)(plainClient(t, s).Do(within(t), do...).Result())
		var found []backend.Finding
		must[any](t)(nil, client.Examine(within(t), func(f backend.Finding) {
			if f.Subject == "scripts" {
				found = append(found, f)
			}
		}))
		if len(found) != 1 || found[0].Level != backend.Fault || !strings.Contains(found[0].Advice, advice) || strings.Count(found[0].Text, "pexpire") != 1 {
			t.Errorf("%v: want one fault that says %q: %+v", do, advice, found)
		}
	}
}

// A reply is an error of a server.
type reply string

func (r reply) Error() string { return string(r) }
func (reply) RedisError()     {}

// TestMissingRight has what servers say of a right that is missing.
func TestMissingRight(t *testing.T) {
	for said, want := range map[string]string{
		"NOPERM this user has no permissions to run the 'time' command":                                              "+x",
		"ERR The user executing the script can't run this command or subcommand":                                     "+x",
		"ERR ACL failure in script: User u has no permissions to run the 'hset' command":                             "+x",
		"NOPERM this user has no permissions to access one of the keys used as arguments":                            "~dlock:*",
		"ERR The user executing the script can't access at least one of the keys mentioned in the command arguments": "~dlock:*",
		"ERR ACL failure in script: No permissions to access a key":                                                  "~dlock:*",
		"ERR The user executing the script can't publish to the channel mentioned in the command":                    "&dlock:*",
		"NOPERM No permissions to access a channel":                                                                  "&dlock:*",
		"OOM command not allowed when used memory > 'maxmemory'.":                                                    "",
	} {
		if got := missingRight(said, "+x"); got != want {
			t.Errorf("%s: %q", said, got)
		}
		if denied := kindOf(reply(said)) == backend.ErrAuth; denied != (want != "") {
			t.Errorf("%s: denied: %v", said, denied)
		}
	}
}

// Who may run no script is told what to allow.
func TestExamineSaysWhichScriptsToAllow(t *testing.T) {
	t.Parallel()
	s := server.Start(t, server.Redis{})
	client := openURL(t, "redis://"+s.Addr(), nil)
	must[any](t)(plainClient(t, s).Do(within(t), "acl", "setuser", "default", "-eval", "-evalsha").Result())
	var advice string
	must[any](t)(nil, client.Examine(within(t), func(f backend.Finding) {
		if f.Subject == "scripts" && f.Level == backend.Fault {
			advice = f.Advice
		}
	}))
	if !strings.Contains(advice, "+evalsha") {
		t.Errorf("the advice is %q", advice)
	}
}
