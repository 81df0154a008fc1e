package etcd

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/dlock-go/dlock/backend"
)

const (
	pageKeys    = 500                 // read at a time: with the longest names and labels they fit maxAnswer
	namesRest   = 4 * backend.MaxRest // between pages: with each the server counts all keys that are left
	namesTimes  = 2                   // how many times longer: writes that wait for a page hold up others
	leasesAsked = 16                  // for their rest, which takes a request each

	reasonTimeout = 250 * time.Millisecond // for a holder to ask why its key was deleted
)

// Ping implements backend.Pinger. A member is healthy if it knows a leader and has
// raised no alarm.
func (b *Backend) Ping(ctx context.Context) (version string, err error) {
	var reply *pb.StatusResponse
	err = b.query(ctx, func(ctx context.Context) (err error) {
		reply, err = b.status(ctx)
		return fail(err)
	})
	switch {
	case err != nil:
		return "", err
	case len(reply.Errors) > 0:
		return reply.Version, b.at(backend.Fail(backend.ErrUnavailable, errors.New(strings.Join(reply.Errors, ", "))))
	case reply.Leader == 0:
		return reply.Version, b.at(backend.Fail(backend.ErrUnavailable, errNoLeader))
	}
	return reply.Version, nil
}

// status asks the member that the client is connected to, once it is connected.
func (b *Backend) status(ctx context.Context) (*pb.StatusResponse, error) {
	return pb.NewMaintenanceClient(b.client.ActiveConnection()).Status(ctx, &pb.StatusRequest{}, grpc.WaitForReady(true))
}

// Inspect implements backend.Inspector. The client of a party is the last eight digits
// of its lease. Left is told of a lock's first 16 holders, in whole seconds. The token is
// that of the goroutine that was granted the hold, although it may have passed it on.
// etcd does not know since when somebody holds or waits.
func (b *Backend) Inspect(ctx context.Context, name string) (out backend.Snapshot, err error) {
	holders, waiters, err := b.readQueue(ctx, name, backend.MaxRest)
	if err != nil {
		return backend.Snapshot{}, err
	}
	for _, e := range waiters {
		out.Waiters = append(out.Waiters, e.party())
	}
	err = b.query(ctx, func(ctx context.Context) error {
		out.Holders = nil
		left := make(map[int64]time.Duration)
		for _, e := range holders {
			p := e.party()
			p.Entries, p.Token, p.Left = 1, uint64(e.joined)*tokensPerHold, b.leaseLeft(ctx, e.kv.Lease, left)
			out.Holders = append(out.Holders, p)
		}
		return nil
	})
	return out, err
}

// Names implements backend.Inspector.
func (b *Backend) Names(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		locks := b.prefix + "l/"
		from := locks + backend.EncodeName(prefix)
		end, last := clientv3.GetPrefixRangeEnd(from), ""
		for more := true; more; {
			asked := time.Now()
			page, err := b.queryPage(ctx, from, end, 0)
			if err != nil {
				yield("", err)
				return
			}
			took := time.Since(asked)
			for _, kv := range page.Kvs {
				text, _, _ := strings.Cut(strings.TrimPrefix(string(kv.Key), locks), "/")
				name, ok := backend.DecodeName(text)
				if !ok || isMarked(kv) || text == last {
					continue
				}
				last = text
				if !yield(name, nil) {
					return
				}
			}
			if more = page.More; more {
				from = string(page.Kvs[len(page.Kvs)-1].Key) + "\x00"
				if dir := locks + last + "/"; last != "" && strings.HasPrefix(from, dir) {
					from = clientv3.GetPrefixRangeEnd(dir) // past the rest of its queue
				}
				backend.Rest(backend.WithRests(ctx, namesTimes), took, namesRest)
			}
		}
	}
}

// Break implements backend.Breaker: it deletes the holder's key, and leaves word for the
// holder that this was Break. Any token of the hold's block breaks it: the server does
// not know how often goroutines of the holder's client have passed it on.
func (b *Backend) Break(ctx context.Context, name string, token uint64) error {
	unsure := false // an earlier try may have deleted the key
	mark := true
	for {
		holders, _, err := b.readQueue(ctx, name, 0)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(holders, func(e entry) bool { return e.joined > 0 && uint64(e.joined) == token/tokensPerHold })
		switch {
		case i < 0 && unsure:
			return nil
		case i < 0:
			return backend.ErrNotHeld
		}
		var deleted bool
		err = b.query(ctx, func(ctx context.Context) (err error) {
			deleted, err = b.breakEntry(ctx, holders[i], mark)
			unsure = unsure || err != nil
			return err
		})
		if mark && (errors.Is(err, rpctypes.ErrNoSpace) || errors.Is(err, backend.ErrAuth)) {
			mark = false // to delete the key may be allowed
			continue
		}
		if deleted || err != nil {
			return err
		}
	}
}

// query calls do, which bounds each of its requests, until it has an answer. It ends
// with the backend.
func (b *Backend) query(ctx context.Context, do func(context.Context) error) error {
	ctx, end, err := b.calls.Begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	err = repeat(ctx, backend.FirstAnswer, do)
	if err != nil && b.ctx.Err() != nil {
		return backend.ErrClosed
	}
	return b.at(err)
}

// An entry is the key of a request in a queue, as the server has it.
type entry struct {
	kv     *mvccpb.KeyValue
	kind   string // writers, readers, or downgradedHolds
	lease  string // and a number, as in the key
	label  string
	joined int64 // the revision at which the request joined the queue
}

// entryOf returns false for a key that counts for nothing in a queue.
func entryOf(dir string, kv *mvccpb.KeyValue) (e entry, ok bool) {
	key, ok := strings.CutPrefix(string(kv.Key), dir)
	if !ok || isMarked(kv) || len(key) < len(writers) {
		return entry{}, false
	}
	e = entry{kv: kv, kind: key[:len(writers)], lease: key[len(writers):], joined: kv.CreateRevision}
	joined, label, _ := strings.Cut(string(kv.Value), live)
	e.label = label
	if e.kind == downgradedHolds {
		e.joined, _ = strconv.ParseInt(joined, 10, 64) // 0 if it is nonsense
	}
	return e, e.kind == writers || e.kind == readers || e.kind == downgradedHolds
}

func (e entry) party() backend.Party {
	lease, _, _ := strings.Cut(e.lease, ".")
	p := backend.Party{Label: e.label, Client: lease[max(len(lease)-8, 0):], Mode: backend.Shared}
	if e.kind == writers {
		p.Mode = backend.Exclusive
	}
	return p
}

// readQueue returns who holds the lock and who waits, each in the order of the queue,
// all at one revision. It pauses for rest at most between two pages. If the server forgets that
// revision meanwhile, it begins again.
func (b *Backend) readQueue(ctx context.Context, name string, rest time.Duration) (holders, waiters []entry, err error) {
	dir := b.prefix + "l/" + backend.EncodeName(name) + "/"
	from, end, revision := dir, clientv3.GetPrefixRangeEnd(dir), int64(0)
	var queue []entry
	for more := true; more; {
		asked := time.Now()
		page, err := b.queryPage(ctx, from, end, revision)
		if errors.Is(err, rpctypes.ErrCompacted) {
			from, revision, queue = dir, 0, nil
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		for _, kv := range page.Kvs {
			if e, ok := entryOf(dir, kv); ok {
				queue = append(queue, e)
			}
		}
		if more = page.More; more {
			from = string(page.Kvs[len(page.Kvs)-1].Key) + "\x00"
			revision = cmp.Or(revision, page.Header.Revision)
			backend.Rest(ctx, time.Since(asked), rest)
		}
	}
	slices.SortFunc(queue, func(a, b entry) int { return cmp.Compare(a.joined, b.joined) })
	downgraded := slices.ContainsFunc(queue, func(e entry) bool { return e.kind == downgradedHolds })
	writerBefore := false
	for i, e := range queue {
		holds := e.kind == downgradedHolds || e.kind == readers && !writerBefore || i == 0 && !downgraded
		if holds {
			holders = append(holders, e)
		} else {
			waiters = append(waiters, e)
		}
		writerBefore = writerBefore || e.kind == writers
	}
	return holders, waiters, nil
}

// queryPage is readPage until there is an answer: each page of a long queue has the time of one.
func (b *Backend) queryPage(ctx context.Context, from, end string, revision int64) (page *clientv3.GetResponse, err error) {
	compacted := false
	err = b.query(ctx, func(ctx context.Context) (err error) {
		page, err = b.readPage(ctx, from, end, revision)
		if compacted = errors.Is(err, rpctypes.ErrCompacted); compacted {
			return nil // that stays so
		}
		return err
	})
	if compacted {
		return nil, rpctypes.ErrCompacted
	}
	return page, err
}

// readPage reads the first of the keys from one to another, at a revision or, if that is
// zero, at the newest.
func (b *Backend) readPage(ctx context.Context, from, end string, revision int64) (*clientv3.GetResponse, error) {
	ctx, cancel := b.request(ctx)
	defer cancel()
	sent := time.Now()
	page, err := b.client.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(pageKeys), clientv3.WithRev(revision))
	if err != nil {
		return nil, fail(err)
	}
	b.answered(sent)
	if n := len(page.Kvs); page.More && (n == 0 || string(page.Kvs[n-1].Key) < from) {
		return nil, fail(errBadAnswer) // it would never end
	}
	return page, nil
}

// leaseLeft returns how long the server keeps a lease that is not renewed, or zero if it
// does not tell. Those that it was asked for before are in known.
func (b *Backend) leaseLeft(ctx context.Context, lease int64, known map[int64]time.Duration) time.Duration {
	left, ok := known[lease]
	if ok || lease == 0 || len(known) == leasesAsked {
		return left
	}
	ctx, cancel := b.request(ctx)
	defer cancel()
	if reply, err := b.client.TimeToLive(ctx, clientv3.LeaseID(lease)); err == nil {
		left = time.Duration(max(reply.TTL, 0)) * time.Second
	}
	known[lease] = left
	return left
}

// breakEntry deletes the key if it is the one that was read and was not marked since. If
// mark is set it puts a key from which the holder learns of that: see explainLoss.
func (b *Backend) breakEntry(ctx context.Context, e entry, mark bool) (deleted bool, err error) {
	ctx, cancel := b.request(ctx)
	defer cancel()
	ops := []clientv3.Op{clientv3.OpDelete(string(e.kv.Key))}
	if lease := clientv3.LeaseID(e.kv.Lease); mark && lease != 0 {
		session, _, _ := strings.Cut(e.lease, ".")
		ops = append(ops, clientv3.OpPut(b.brokenKey(session, e.joined), "", clientv3.WithLease(lease)))
	}
	unmarked := clientv3.Compare(clientv3.Value(string(e.kv.Key)), "!=", marked)
	reply, err := b.client.Txn(ctx).If(versionOf(e.kv).exists(), unmarked).Then(ops...).Commit()
	if err != nil {
		return false, fail(err)
	}
	return reply.Succeeded, nil
}

// brokenKey is the key that Break puts for a hold that joined the queue at revision.
func (b *Backend) brokenKey(session string, revision int64) string {
	return b.prefix + "s/" + session + "/broken/" + strconv.FormatInt(revision, 10)
}

// explainLoss adds to the error of a hold whose key was deleted whether Break has done
// that.
func (h *hold) explainLoss(ctx context.Context, err error) error {
	if errors.Is(err, errKeyDeleted) && h.session.areBroken(ctx, []*hold{h})[0] {
		return backend.Fail(backend.ErrLost, backend.ErrBroken)
	}
	return err
}

// areBroken reports which of the holds Break has ended, and deletes what Break has put
// to say so. It reports none of them if there is no answer at once: the loss of a hold
// does not wait for its reason.
func (s *session) areBroken(ctx context.Context, holds []*hold) []bool {
	ctx, cancel := backend.Bound(ctx, reasonTimeout)
	defer cancel()
	remove := func(h *hold) clientv3.Op { return clientv3.OpDelete(s.backend.brokenKey(s.id, h.revision)) }
	broken, _ := s.askAll(ctx, holds, remove, hasDeleted)
	return broken
}
