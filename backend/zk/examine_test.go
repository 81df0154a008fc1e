package zk_test

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/zk"
	"github.com/dlock-go/dlock/internal/server"
)

// Each setting that hurts is found on a server that is well otherwise.
func TestExamine(t *testing.T) {
	for name, o := range map[string]zk.Options{
		"":        {Credentials: user("alice", "secret"), Standalone: true},
		"access":  {Standalone: true},
		"session": {Credentials: user("alice", "secret"), SessionTimeout: 24 * time.Hour, Standalone: true},
		"members": {Credentials: user("alice", "secret")},
	} {
		o.Root = rootOf(t) + "-" + name // at the top: what alice creates, others may not create below
		c := connect(t, &o, shared.Addr())
		subjects := make(map[string]backend.Level)
		must(t, c.Examine(t.Context(), func(f backend.Finding) { subjects[f.Subject] = max(f.Level, subjects[f.Subject]) }))
		if len(subjects) < 4 {
			t.Errorf("few subjects: %v", subjects)
		}
		for subject, level := range subjects {
			if (level > backend.OK) != (subject == name) {
				t.Errorf("%q: %s is %v", name, subject, level)
			}
		}
	}
}

// complaints returns what Examine says is not as it should be, by subject.
func complaints(t *testing.T, c *dlock.Client) map[string]string {
	bad := make(map[string]string)
	must(t, c.Examine(testContext(t), func(f backend.Finding) {
		if f.Level > backend.OK {
			bad[f.Subject] += f.Text + "; "
		}
		if (f.Level > backend.OK) != (f.Advice != "") {
			t.Errorf("advice is for what is not as it should be: %v", f)
		}
	}))
	return bad
}

// Each server is configured badly in one way.
func TestExamineServers(t *testing.T) {
	t.Parallel()
	slow := server.Start(t, server.ZooKeeper{Config: []string{"minSessionTimeout=60000", "maxSessionTimeout=120000"}})
	hasty := server.Start(t, server.ZooKeeper{Config: []string{"maxSessionTimeout=2000"}})
	for _, tt := range []struct {
		subject, text string
		addrs         []string
	}{
		{"session", "the server grants 1m0s in place of 5s", []string{slow.Addr()}},
		{"session", "the server grants 2s in place of 5s", []string{hasty.Addr()}},
		{"members", "does not tell of itself", []string{shared.Addr(), server.ReserveAddr(t)}},
		{"version", "is ZooKeeper 3.4.14, standalone: it has no container nodes", []string{asVersion(t, "3.4.14-4c25d48", shared.Addr())}},
	} {
		o := &zk.Options{Credentials: user("alice", "secret"), SessionTimeout: 5 * time.Second, Standalone: true, Root: rootOf(t) + "-" + tt.subject}
		bad := complaints(t, member(t, o, tt.addrs...))
		if len(bad) != 1 || !strings.Contains(bad[tt.subject], tt.text) {
			t.Errorf("%v, want %s: %s", bad, tt.subject, tt.text)
		}
	}
}

// asVersion returns an address at which the server at addr says that it has that version,
// which is too old to be installed.
func asVersion(t *testing.T, version, addr string) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { l.Close() })
	relay := func(client net.Conn) {
		defer client.Close()
		word := make([]byte, 4)
		if _, err := io.ReadFull(client, word); err != nil {
			return
		}
		if string(word) == "srvr" {
			_, _ = io.WriteString(client, "Zookeeper version: "+version+", built on 06/13/2019\nMode: standalone\n")
			return
		}
		server, err := net.Dial("tcp", addr)
		if err != nil {
			return
		}
		defer server.Close()
		_, _ = server.Write(word)
		go func() { _, _ = io.Copy(server, client); server.Close() }()
		_, _ = io.Copy(client, server)
	}
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go relay(client)
		}
	}()
	return l.Addr().String()
}
