//go:build unix

package main

import (
	"strings"
	"testing"

	"github.com/dlock-go/dlock/internal/canary"
	"github.com/dlock-go/dlock/internal/server"
)

// No command shows the password of its URL: on a server that takes it, on one that does
// not, on one that is away, and in a URL that is of no use.
func TestNoSecretsInQueries(t *testing.T) {
	well := server.Start(t, server.Redis{Args: []string{"--requirepass", canary.Secret}})
	other := server.Start(t, server.Redis{Args: []string{"--requirepass", "other"}})
	const login = "user:" + canary.Secret + "@"
	urls := map[string]bool{ // whether the server takes the password
		"redis://:" + canary.Secret + "@" + well.Addr():                                true,
		"redis://:" + canary.Secret + "@" + other.Addr():                               false,
		"redis://" + login + well.Addr():                                               false,
		"redis+cluster://:" + canary.Secret + "@" + well.Addr():                        false,
		"redlock://:" + canary.Secret + "@" + well.Addr() + "," + other.Addr() + ",:1": false,
		"etcd://" + login + well.Addr():                                                false,
		"postgres://" + login + well.Addr() + "/db?sslmode=disable":                    false,
		"postgres://" + login + "127.0.0.1:1/db":                                       false,
		"zk://" + login + "127.0.0.1:1":                                                false,
		"redis://" + login + "127.0.0.1:" + canary.Secret:                              false,
		"postgres://" + login + "127.0.0.1/db?sslmode=" + canary.Secret:                false,
		canary.Secret: false,
	}
	for url, takes := range urls {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			s := newShell(t, urlVariable+"="+url)
			if takes {
				s.start("run", "job", "--", "sh", "-c", "echo > held; exec sleep 300")
				s.await("held")
			}
			commands := []string{"show --json job", "doctor"}
			if takes {
				commands = append(commands, "ping", "ping --json", "ls", "ls --json", "show job", "watch -n 1 job", "watch -n 1 --json job",
					"doctor --json", "doctor "+url, "__complete show j", "unlock --force --yes --token 1 job", "unlock --force --yes job")
			}
			for _, command := range commands {
				code, p := s.run(strings.Fields(command)...)
				if text := p.out.String() + p.err.String(); strings.Contains(text, canary.Secret) {
					t.Errorf("%s printed %q", command, text)
				}
				if succeeds := takes && !strings.Contains(command, "--token 1"); (code == 0) != succeeds {
					t.Errorf("%s exited with %d: %s", command, code, p.err.String())
				}
			}
		})
	}
}
