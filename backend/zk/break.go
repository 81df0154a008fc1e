package zk

import (
	"context"
	"errors"
	"slices"
	"strings"

	gozk "github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/backend"
)

// maxBroken is how many broken holds the placeholder names, the last ones.
const maxBroken = 128

// Break implements backend.Breaker: it deletes the holder's node. The tokens of the
// goroutines that have passed a hold on all stand for it.
func (b *Backend) Break(ctx context.Context, name string, token uint64) error {
	unsure := false // an earlier try may have deleted the node
	_, err := query(ctx, b, func(s *session) (none struct{}, err error) {
		for {
			holders, _, err := s.readQueue(ctx, b.dirOf(name), parseHolders, 0)
			if err != nil {
				return none, err
			}
			i := slices.IndexFunc(holders, func(e entry) bool { return e.token/tokens == token/tokens && e.token <= token })
			switch {
			case i < 0 && unsure:
				return none, nil
			case i < 0:
				return none, backend.ErrNotHeld
			}
			tried, err := s.breakNode(b.dirOf(name), holders[i].name)
			unsure = unsure || tried && isUnclear(err)
			// The node is gone, or a reader's by now, or another hold was broken at the same time.
			if !errors.Is(err, gozk.ErrNoNode) && !errors.Is(err, gozk.ErrBadVersion) {
				return none, err
			}
		}
	})
	return err
}

// parseHolders is parseQueue of those that may hold the lock, as far as their names tell: who waits
// is not read.
func parseHolders(children []string) queue {
	q := parseQueue(children)
	if slices.ContainsFunc(q, position.hasOverflowed) {
		return q
	}
	slices.SortFunc(q, byPlace)
	if first := slices.IndexFunc(q, func(p position) bool { return p.mode == backend.Exclusive }); first >= 0 {
		q = q[:max(first, 1)]
	}
	return q
}

// breakNode deletes the node of a hold. That does not tell the owner by whom. So the
// transaction also writes the guid to the placeholder, where the owner looks for it. If
// that is forbidden the hold is broken without. It reports whether it has tried to delete the
// node.
func (s *session) breakNode(dir, name string) (tried bool, err error) {
	data, stat, err := s.client.Get(s.placeholder())
	if errors.Is(err, gozk.ErrNoNode) {
		if err = s.createPlaceholder(); err == nil {
			data, stat, err = s.client.Get(s.placeholder())
		}
	}
	if isUnclear(err) || errors.Is(err, errSessionEnded) {
		return false, err
	}
	d := deletion{session: s, path: dir + "/" + name, signal: signalLast}
	if err == nil {
		broken := append(strings.Fields(string(data)), name[:guidLength])
		broken = broken[max(0, len(broken)-maxBroken):]
		d.before = []any{&gozk.SetDataRequest{Path: s.placeholder(), Data: []byte(strings.Join(broken, " ")), Version: stat.Version}}
		err = d.send()
	}
	if errors.Is(err, gozk.ErrNoAuth) || isOverQuota(err) {
		d.before = nil
		err = d.send()
	}
	return true, err
}

// broken returns the guids of the holds that were broken last. It returns none if there is
// no answer soon: the loss of a hold does not wait for its reason.
func (s *session) broken() string {
	ctx, cancel := backend.Bound(s.ctx, minTimeout)
	defer cancel()
	answer := make(chan string, 1)
	_ = s.backend.do(ctx, func() error {
		data, _, err := s.client.Get(s.placeholder())
		answer <- string(data)
		return err
	})
	select {
	case guids := <-answer:
		return guids
	default:
		return ""
	}
}

// removalCause says why the node of h is gone.
func (h *hold) removalCause(broken string) error {
	if strings.Contains(broken, h.position.name[:guidLength]) {
		return backend.ErrBroken
	}
	return errHoldRemoved
}
