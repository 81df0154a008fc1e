package zk

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"path"
	"strings"
	"time"

	gozk "github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/backend"
)

// statLimit is how long a member may take to tell of itself.
const statLimit = time.Second

// Examine implements backend.Examiner. The members tell of themselves by the word srvr,
// without encryption and without a login, which a server may not allow.
func (b *Backend) Examine(ctx context.Context, report func(backend.Finding)) error {
	s, err := query(ctx, b, func(s *session) (*session, error) {
		_, err := s.client.Sync(b.opts.Root)
		return s, err
	})
	if err != nil {
		return err
	}
	for _, f := range b.checkMembers(ctx) {
		report(f)
	}
	report(checkSession(b.opts.SessionTimeout, s.grantedTimeout()))
	report(checkACL(b.opts))
	for _, f := range b.checkLock(ctx, s) {
		report(f)
	}
	return nil
}

// checkMembers asks each server of the URL.
func (b *Backend) checkMembers(ctx context.Context) (out []backend.Finding) {
	const subject = "members"
	mode := ""
	for _, server := range b.servers {
		version := ""
		if version, mode = memberOf(ctx, server); version == "" {
			out = append(out, backend.Warn(subject, server+" does not tell of itself", "start it, or let it answer srvr to show its version here (4lw.commands.whitelist)"))
		} else {
			out = append(out, checkVersion(server, version, mode))
		}
	}
	if mode == "standalone" && len(b.servers) == 1 && !b.opts.Standalone {
		out = append(out, backend.Warn(subject, "there is a single server, which is asked as a member of an ensemble", "set ensemble=false to save requests, or add members"))
	}
	return out
}

// memberOf returns the version and the mode of a server, nothing if it does not tell.
func memberOf(ctx context.Context, server string) (version, mode string) {
	ctx, cancel := backend.Bound(ctx, statLimit)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", server)
	if err != nil {
		return "", ""
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(statLimit))
	if _, err := io.WriteString(conn, "srvr"); err != nil {
		return "", ""
	}
	for lines := bufio.NewScanner(io.LimitReader(conn, 16<<10)); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), ": ")
		switch name {
		case "Zookeeper version":
			version, _, _ = strings.Cut(value, ",")
		case "Mode":
			mode = value
		}
	}
	return version, mode
}

func checkVersion(server, version, mode string) backend.Finding {
	const subject = "version"
	var major, minor int
	short, _, _ := strings.Cut(version, "-")
	_, err := fmt.Sscanf(short, "%d.%d", &major, &minor)
	text := fmt.Sprintf("%s is ZooKeeper %s, %s", server, short, mode)
	if err == nil && major == 3 && minor < 5 {
		return backend.Warn(subject, text+": it has no container nodes, so that the nodes of locks stay", "use 3.5.3 or later")
	}
	return backend.Good(subject, text)
}

// checkSession compares the session timeout that was asked for with the one granted.
func checkSession(asked, granted time.Duration) backend.Finding {
	const subject = "session"
	switch {
	case granted > asked+asked/10:
		return backend.Warn(subject, fmt.Sprintf("the server grants %v in place of %v: the locks of a process that crashes stay for so long", granted, asked),
			"lower tickTime or minSessionTimeout")
	case granted < asked-asked/10:
		return backend.Warn(subject, fmt.Sprintf("the server grants %v in place of %v: a process that is cut off loses its locks sooner", granted, asked),
			"raise maxSessionTimeout")
	}
	return backend.Good(subject, fmt.Sprintf("sessions last %v", granted))
}

func checkACL(o Options) backend.Finding {
	const subject = "access"
	if allowsEverybody(o.ACL) {
		return backend.Warn(subject, "everybody who reaches the server may take locks away", "give the URL a user, or set Options.ACL")
	}
	return backend.Good(subject, "only those whom the ACL names may change locks")
}

// checkLock takes a lock of its own, and removes it.
func (b *Backend) checkLock(ctx context.Context, s *session) []backend.Finding {
	const subject = "permissions"
	name := "examine:" + rand.Text()
	h, err := b.Acquire(ctx, backend.Request{Name: name, ID: backend.ID{Client: rand.Text(), Seq: 1}, Mode: backend.Exclusive, TTL: time.Minute})
	if err == nil {
		err = b.Release(ctx, h)
	}
	dir := path.Join(b.opts.Root, backend.EncodeName(name))
	if rest := s.client.Delete(dir, -1); err == nil && !errors.Is(rest, gozk.ErrNoNode) {
		err = rest
	}
	switch {
	case err != nil:
		return []backend.Finding{backend.Bad(subject, "no lock can be taken: "+err.Error(), "allow read, create, write and delete below "+b.opts.Root)}
	case b.noContainers.Load():
		return []backend.Finding{
			backend.Good(subject, "a lock was taken and given back"),
			backend.Warn("containers", "the server has no container nodes: the nodes of locks stay", "use 3.5.3 or later"),
		}
	}
	return []backend.Finding{backend.Good(subject, "a lock was taken and given back")}
}
