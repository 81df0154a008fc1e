package redis

import (
	"context"
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// A transport takes commands to the server that they are for.
type transport interface {
	// do executes a command and returns its reply. It waits no longer than
	// limit. Where replicas have to acknowledge what is durable and have not,
	// it returns an error beside the reply.
	do(ctx context.Context, limit time.Duration, args []any, k kind) (any, error)
}

var _, _ transport = (*pipeliner)(nil), (*nodes)(nil)

// A kind of command says what its caller expects.
type kind uint8

const (
	ordinary kind = iota
	durable       // the caller counts on what it does
	joinable      // its script takes several locks
)

// until is closing, or nil for what is waited for although the backend closes: what it
// still has to tell the server is ordinary.
func (k kind) until(closing <-chan struct{}) <-chan struct{} {
	if k == ordinary {
		return nil
	}
	return closing
}

// keyAt is where a command that runs a script has its first key.
const keyAt = 3

// nodes are the masters of a cluster, each with pipelines of its own: one that
// does not answer holds up nobody who asks another.
type nodes struct {
	client   *redis.ClusterClient
	replicas int
	closing  <-chan struct{} // as of a pipeliner
	known    atomic.Bool     // the client has learnt once who has which slots

	mu       sync.RWMutex
	masters  map[*redis.Client]*pipeliner
	question *question // how that is being learnt; nil: it is not
}

// A question is put to the cluster once for all who wait for the answer.
type question struct {
	done chan struct{} // closed when there is an answer, or none will come
	err  error
}

// disused is for how long nothing was sent to a node that may not be there any
// more: nobody tells.
const disused = time.Minute

func newNodes(c *redis.ClusterClient, replicas int) *nodes {
	return &nodes{client: c, replicas: replicas, masters: make(map[*redis.Client]*pipeliner)}
}

// do implements carrier. A redirect is proof that the command has not run, and
// is followed; any other repetition is the caller's affair.
func (n *nodes) do(ctx context.Context, limit time.Duration, args []any, k kind) (any, error) {
	end := time.Now().Add(limit)
	p, err := n.master(ctx, limit, args[keyAt].(string))
	if err != nil {
		return nil, err
	}
	reply, err := p.do(ctx, time.Until(end), args, k)
	if err == nil {
		return reply, nil
	}
	if redirected(err) && (k != durable || n.replicas == 0) {
		return n.follow(ctx, end, args, k)
	}
	if _, said := replied(err); !said || redirected(err) {
		n.reload() // another may have taken its place
	}
	return reply, err
}

// master returns the pipelines to the master of key.
func (n *nodes) master(ctx context.Context, limit time.Duration, key string) (*pipeliner, error) {
	node, err := n.owner(ctx, limit, key)
	if err != nil {
		return nil, err
	}
	n.mu.RLock()
	p := n.masters[node]
	n.mu.RUnlock()
	if p != nil {
		return p, nil
	}
	return n.connect(node), nil
}

// connect returns the pipelines to a node that had none. Another one may have gone.
func (n *nodes) connect(node *redis.Client) *pipeliner {
	n.mu.Lock()
	defer n.mu.Unlock()
	if p := n.masters[node]; p != nil {
		return p
	}
	then := time.Now().Add(-disused)
	maps.DeleteFunc(n.masters, func(_ *redis.Client, p *pipeliner) bool { return p.unused(then) })
	p := newPipeliner(node, n.replicas)
	p.oneLock, p.closing = true, n.closing
	n.masters[node] = p
	return p
}

// owner returns the client of the master of key. Only the first calls may have
// to wait.
func (n *nodes) owner(ctx context.Context, limit time.Duration, key string) (*redis.Client, error) {
	if !n.known.Load() {
		if err := n.learn(ctx, limit, key); err != nil {
			return nil, err
		}
	}
	return n.client.MasterForKey(ctx, key)
}

// learn waits for the answer to the question who has which slots.
func (n *nodes) learn(ctx context.Context, limit time.Duration, key string) error {
	q := n.ask(key)
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-q.done:
		return q.err
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-n.closing:
		return errNoReply
	case <-t.C:
		return errNoReply
	}
}

// ask returns the question that is under way, and puts it if there is none.
func (n *nodes) ask(key string) *question {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.question != nil {
		return n.question
	}
	q := &question{done: make(chan struct{})}
	n.question = q
	go func() {
		defer close(q.done)
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		q.err = guard(func() error {
			_, err := n.client.MasterForKey(ctx, key)
			return err
		})
		n.known.CompareAndSwap(false, q.err == nil)
		n.mu.Lock()
		defer n.mu.Unlock()
		n.question = nil
	}()
	return q
}

// reload has the client ask again who has which slots.
func (n *nodes) reload() { n.client.ReloadState(context.Background()) }

// redirected reports that the command has not run, because it belongs on another
// node or the client library has given up this one.
func redirected(err error) bool {
	return redis.HasErrorPrefix(err, "MOVED ") || redis.HasErrorPrefix(err, "ASK ") || errors.Is(err, redis.ErrClosed)
}

// follow has the client library send the command, which knows how to go where
// a redirect points, also to a node that has no slot yet. On which connection,
// and with that by which replicas, is its secret: what is durable has to be
// asked for again instead, when it is known who has the slot.
func (n *nodes) follow(ctx context.Context, end time.Time, args []any, k kind) (any, error) {
	c := newCommand(ctx, args)
	c.closing = k.until(n.closing)
	c.left.Store(true)
	go func() {
		process(context.WithoutCancel(ctx), n.client, []*command{c})
		c.done <- struct{}{}
	}()
	return c.await(ctx, time.Until(end))
}
