package etcd

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/backend"
)

const (
	defaultTTL   = 10 * time.Second // of the lock that Examine tries, for a client given to New
	defaultQuota = 2 << 30          // of servers before 3.6, which do not tell theirs
	shortLogin   = time.Minute      // a token that lasts for less costs many logins
)

// Examine implements backend.Examiner. It asks the members that the client knows, and
// locks and unlocks a name that nobody else uses.
func (b *Backend) Examine(ctx context.Context, report func(backend.Finding)) error {
	ctx, end, err := b.calls.Begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	reported := make(map[backend.Finding]bool) // members tell of each other's alarms
	once := func(findings ...backend.Finding) {
		for _, f := range findings {
			if !reported[f] {
				reported[f] = true
				report(f)
			}
		}
	}
	if err := b.checkMembers(ctx, once); err != nil {
		return b.at(err)
	}
	b.checkLock(ctx, once)
	if b.owned {
		once(checkLogin(b.login))
	}
	return backend.Cause(ctx)
}

// logWarnings logs what one member says of itself that is not as it should be. Nobody
// waits for its answer.
func (b *Backend) logWarnings(log *slog.Logger) {
	b.janitor.Go(func(ctx context.Context) {
		ctx, cancel := backend.Bound(ctx, backend.FirstAnswer)
		defer cancel()
		status, err := b.status(ctx)
		if err != nil {
			return
		}
		for _, f := range checkStatus("the member", status) {
			if f.Level > backend.OK {
				log.Warn("dlock: etcd: "+f.Text, "advice", f.Advice)
			}
		}
	})
}

// statusLimit is how long a member may take to say why the cluster is of no use.
const statusLimit = time.Second

// withReason adds to ErrUnavailable what a member says is wrong with the cluster: with no
// leader or no space requests run into their limits, and those say nothing.
func (b *Backend) withReason(ctx context.Context, err error) error {
	if !errors.Is(err, backend.ErrUnavailable) || b.failure.reason.Load() != nil {
		return err
	}
	ctx, cancel := backend.Bound(context.WithoutCancel(ctx), statusLimit) // that of the call may be over
	defer cancel()
	status, e := b.status(ctx)
	if e != nil {
		return err
	}
	for _, f := range checkStatus("the member", status) {
		if f.Level == backend.Fault {
			err = backend.Because(err, errors.New(f.Text+": "+f.Advice))
		}
	}
	return err
}

// checkMembers asks each member that the client knows. It fails if none answers.
func (b *Backend) checkMembers(ctx context.Context, report func(...backend.Finding)) error {
	endpoints := b.members.endpoints
	statusCtx, cancel := b.request(ctx)
	statuses, errs := b.statuses(statusCtx)
	cancel()
	answered := make(map[uint64]bool)
	for i, endpoint := range endpoints {
		if errs[i] != nil {
			report(backend.Warn("members", hostOf(endpoint)+" does not answer", "start it, or take it out of the URL"))
			continue
		}
		answered[statuses[i].GetHeader().GetMemberId()] = true
		report(checkStatus(hostOf(endpoint), statuses[i])...)
	}
	if len(answered) == 0 {
		return fail(errors.Join(errs...))
	}
	ctx, cancel = b.request(ctx)
	defer cancel()
	list, err := b.client.MemberList(ctx)
	if err != nil {
		report(backend.Bad("members", "the cluster does not list its members: "+err.Error(), "see that a majority of them runs"))
		return nil
	}
	voters := 0
	for _, m := range list.Members {
		if !m.IsLearner {
			voters++
		}
	}
	report(checkMemberCount(len(answered), voters))
	return nil
}

func checkMemberCount(answered, voters int) backend.Finding {
	const subject = "members"
	text := fmt.Sprintf("%d of %d members are in the URL and answer", answered, voters)
	switch {
	case voters == 1:
		return backend.Warn(subject, "the cluster has one member: no lock can be taken while that is away", "run three members")
	case answered <= voters/2:
		return backend.Warn(subject, text+", which is no majority", "name all of them in the URL, and start those that are down")
	case answered < voters:
		return backend.Warn(subject, text, "name all of them in the URL, and start those that are down")
	case voters%2 == 0:
		return backend.Warn(subject, fmt.Sprintf("the cluster has %d members: one fewer would survive as many failures", voters), "run an odd number of members")
	}
	return backend.Good(subject, text)
}

// checkStatus looks at what the member of that name says of itself.
func checkStatus(name string, status *pb.StatusResponse) []backend.Finding {
	out := []backend.Finding{checkVersion(name, status.Version), checkQuota(name, status)}
	if status.Leader == 0 {
		out = append(out, backend.Bad("leader", name+" knows no leader", "see that a majority of the members runs, and that they reach one another"))
	} else {
		out = append(out, backend.Good("leader", "there is a leader"))
	}
	const subject = "alarms"
	for _, text := range status.Errors {
		switch {
		case strings.Contains(text, "NOSPACE"):
			out = append(out, backend.Bad(subject, "NOSPACE: the database is full, and no lock can be taken",
				"compact and defragment it or raise --quota-backend-bytes, then run etcdctl alarm disarm"))
		case strings.Contains(text, "CORRUPT"):
			out = append(out, backend.Bad(subject, "CORRUPT: the data of a member differ from those of the others",
				"remove that member and add it with no data, then run etcdctl alarm disarm"))
		case status.Leader != 0:
			out = append(out, backend.Bad(subject, name+" says: "+text, "see etcdctl endpoint status and etcdctl alarm list"))
		}
	}
	if len(status.Errors) == 0 {
		out = append(out, backend.Good(subject, "no alarm is raised"))
	}
	return out
}

func checkVersion(name, version string) backend.Finding {
	if fault := versionFault(version); fault != "" {
		return backend.Warn("version", name+" is etcd "+version+": "+fault, "use 3.4.31, 3.5.13, 3.6 or later")
	}
	return backend.Good("version", name+" is etcd "+version)
}

// versionFault says what is wrong with a version of the server, nothing if no fault is
// known.
func versionFault(version string) string {
	var major, minor, patch int
	if n, _ := fmt.Sscanf(version, "%d.%d.%d", &major, &minor, &patch); n < 3 || major != 3 {
		return ""
	}
	switch {
	case minor == 5 && patch < 3:
		return "a member that is killed may come back with other data than the rest (etcd-io/etcd#13766)"
	case minor < 4, minor == 4 && patch < 31, minor == 5 && patch < 13:
		return "a leader that has stalled acknowledges renewals of leases that have run out (etcd-io/etcd#15247)"
	}
	return ""
}

func checkQuota(name string, status *pb.StatusResponse) backend.Finding {
	quota, kind := status.DbSizeQuota, "its quota"
	if quota <= 0 {
		quota, kind = defaultQuota, "the default quota"
	}
	text := fmt.Sprintf("the database of %s has %d MB, %d MB of them in use, and %s is %d MB",
		name, status.DbSize>>20, status.DbSizeInUse>>20, kind, quota>>20)
	if status.DbSize > quota/5*4 {
		return backend.Warn("quota", text+": a full server refuses locks", "compact and defragment it, or raise --quota-backend-bytes")
	}
	return backend.Good("quota", text)
}

// checkLock does all that a lock needs on a name of its own: it takes, renews, watches
// and releases it.
func (b *Backend) checkLock(ctx context.Context, report func(...backend.Finding)) {
	const subject = "locks"
	advice := func(err error) string {
		if errors.Is(err, backend.ErrAuth) {
			return "give the user a role with readwrite on the prefix " + b.prefix
		}
		return "see the other findings"
	}
	ctx, cancel := backend.Bound(ctx, backend.FirstAnswer)
	defer cancel()
	ttl := b.ttl
	if ttl == 0 {
		ttl = defaultTTL
	}
	h, err := b.Acquire(ctx, backend.Request{Name: "examine:" + rand.Text(), Mode: backend.Exclusive, TTL: ttl})
	if err != nil {
		report(backend.Bad(subject, "no lock can be taken: "+err.Error(), advice(err)))
		return
	}
	report(checkTTL(ttl, h.Granted))
	b.Renew(ctx, []*backend.Hold{h}, func(_ *backend.Hold, e error) { err = e })
	if err == nil {
		err = h.State.(*hold).checkWatch(ctx)
	}
	if err = errors.Join(err, b.Release(context.WithoutCancel(ctx), h)); err != nil {
		report(backend.Bad(subject, "a lock was taken, but not renewed, watched and released: "+err.Error(), advice(err)))
		return
	}
	report(backend.Good(subject, "a lock was taken, renewed, watched and released below "+b.prefix))
}

// checkWatch watches the hold's key, as the next in line does.
func (h *hold) checkWatch(ctx context.Context) error {
	s := h.session
	watchCtx, cancel := s.watchContext()
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	reply := <-s.watch(watchCtx, cancel, s.backend.streams.forSessions(), h.key.own, clientv3.WithCreatedNotify())
	if err := reply.Err(); err != nil || !reply.Created {
		return errors.Join(errWatchEnded, fail(err))
	}
	return nil
}

func checkTTL(asked, granted time.Duration) backend.Finding {
	text := fmt.Sprintf("a lease of %v is granted for %v", asked, granted)
	if granted > time.Duration(seconds(asked))*time.Second {
		return backend.Warn("lease", text+": that is the least that the cluster grants, and a lock whose holder has died stays for as long",
			"set the TTL to that, or lower the cluster's --election-timeout")
	}
	return backend.Good("lease", text)
}

// checkLogin looks at the token with which requests are sent; l is nil if no user is
// given.
func checkLogin(l *login) backend.Finding {
	const subject = "login"
	if l == nil {
		return backend.Warn(subject, "no user is given: whoever reaches the cluster can take and release every lock",
			"enable authentication, or let only trusted programs reach the cluster")
	}
	state := <-l.state
	l.state <- state
	lifetime, isJWT := jwtLifetime(state.token)
	switch {
	case state.token == "":
		return backend.Warn(subject, "a user is given, but authentication is not enabled: everybody may write", "run etcdctl auth enable")
	case !isJWT:
		return backend.Warn(subject, "tokens are simple: the server does not sign them, and etcd recommends them for development only",
			"start the members with --auth-token=jwt,...")
	case lifetime < shortLogin:
		return backend.Warn(subject, fmt.Sprintf("a token (JWT) lasts for %v more: each client logs in as often", lifetime), "raise the ttl of --auth-token")
	}
	return backend.Good(subject, fmt.Sprintf("tokens are JWTs, and this one lasts for %v more", lifetime))
}

// jwtLifetime returns how long the token can be used, if it is a JWT.
func jwtLifetime(token string) (time.Duration, bool) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return 0, false
	}
	var claims struct {
		Expires int64 `json:"exp"`
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || json.Unmarshal(payload, &claims) != nil {
		return 0, false
	}
	return time.Until(time.Unix(claims.Expires, 0)).Round(time.Second), true
}
