package redis

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/backend"
)

// A cluster is its masters, each with a pipeline of its own: one that
// does not answer holds up nobody who asks another.
type cluster struct {
	client   *redis.ClusterClient
	replicas int
	masters  sync.Map     // of *redis.Client to *pipeline; some of them may have left
	kept     atomic.Int64 // how many those are
	known    atomic.Bool  // the client has learnt once who has which slots

	mu       sync.Mutex
	question *question // how that is being learnt; nil: it is not
}

// A question is put to the cluster once for all who wait for the answer.
type question struct {
	done chan struct{} // closed when there is an answer, or none will come
	err  error
}

func newCluster(client *redis.ClusterClient, replicas int) *cluster {
	return &cluster{client: client, replicas: replicas}
}

// do implements transport. A redirect is proof that the command has not run, and
// is followed; any other repetition is the caller's affair.
func (c *cluster) do(ctx context.Context, limit time.Duration, args []any, k kind) (any, error) {
	end := time.Now().Add(limit)
	p, err := c.master(ctx, limit, args[firstKey].(string))
	if err != nil {
		return nil, err
	}
	reply, err := p.do(ctx, time.Until(end), args, k)
	if err == nil {
		return reply, nil
	}
	if isRedirected(err) && (k != durable || c.replicas == 0) {
		return c.follow(ctx, end, args)
	}
	if _, isReply := replyOf(err); !isReply || isRedirected(err) || says(err, "CLUSTERDOWN") {
		c.reload() // another may have taken its place, or it was taken out of the cluster
	}
	return reply, err
}

// master returns the pipeline to the master of key.
func (c *cluster) master(ctx context.Context, limit time.Duration, key string) (*pipeline, error) {
	node, err := c.owner(ctx, limit, key)
	if err != nil {
		return nil, err
	}
	return c.connect(node), nil
}

// connect returns the pipeline to a node.
func (c *cluster) connect(node *redis.Client) *pipeline {
	p, found := c.masters.Load(node)
	if !found {
		fresh := newPipeline(node, c.replicas)
		fresh.oneLock = true
		if p, found = c.masters.LoadOrStore(node, fresh); !found && c.kept.Add(1) > maxPipelines {
			c.forgetIdle(node)
		}
	}
	return p.(*pipeline)
}

// maxPipelines is how many pipelines are kept before those are forgotten on which nothing is under
// way. That of a node that has left keeps some 25 kB, and each new address is another node.
const maxPipelines = 256

// forgetIdle forgets pipelines of other nodes. One that is still there gets another when it is asked.
func (c *cluster) forgetIdle(but *redis.Client) {
	c.masters.Range(func(node, p any) bool {
		if node != but && p.(*pipeline).isIdle() && c.masters.CompareAndDelete(node, p) {
			c.kept.Add(-1)
		}
		return true
	})
}

// owner returns the client of the master of key. Only the first calls may have
// to wait.
func (c *cluster) owner(ctx context.Context, limit time.Duration, key string) (*redis.Client, error) {
	if !c.known.Load() {
		if err := c.learn(ctx, limit, key); err != nil {
			return nil, err
		}
	}
	return c.client.MasterForKey(ctx, key)
}

// learn waits for the answer to the question who has which slots, and puts it if it is not
// under way.
func (c *cluster) learn(ctx context.Context, limit time.Duration, key string) error {
	c.mu.Lock()
	q := c.question
	if q == nil {
		q = &question{done: make(chan struct{})}
		c.question = q
		go c.ask(q, key)
	}
	c.mu.Unlock()
	ctx, cancel := backend.BoundCause(ctx, limit, errNoReply)
	defer cancel()
	select {
	case <-q.done:
		return q.err
	case <-ctx.Done():
		return backend.Cause(ctx)
	}
}

// ask puts a question.
func (c *cluster) ask(q *question, key string) {
	defer close(q.done)
	ctx, cancel := context.WithTimeout(context.Background(), backend.FirstAnswer)
	defer cancel()
	q.err = guard(func() error {
		_, err := c.client.MasterForKey(ctx, key)
		return err
	})
	c.known.CompareAndSwap(false, q.err == nil)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.question = nil
}

// reload has the client ask again who has which slots.
func (c *cluster) reload() { c.client.ReloadState(context.Background()) }

// eachMaster calls do at once for each master. A node that was taken out of the cluster, and asked who has
// which slots, names nobody: who calls again has the client library ask any node once more.
func (c *cluster) eachMaster(ctx context.Context, do func(context.Context, *redis.Client) error) error {
	var some atomic.Bool
	err := c.client.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		some.Store(true)
		return do(ctx, node)
	})
	if err == nil && !some.Load() {
		return errNoMasters
	}
	return err
}

// errNoMasters says that the node that was asked for the masters of a cluster knows none.
var errNoMasters = errors.New("the cluster names no master")

// isRedirected reports that the command has not run, because it belongs on another
// node or the client library has given up this one.
func isRedirected(err error) bool {
	return redis.HasErrorPrefix(err, "MOVED ") || redis.HasErrorPrefix(err, "ASK ") || errors.Is(err, redis.ErrClosed)
}

// follow has the client library send the command, which knows how to go where
// a redirect points, also to a node that has no slot yet. On which connection,
// and with that by which replicas, is its secret: what is durable has to be
// asked for again instead, when it is known who has the slot.
func (c *cluster) follow(ctx context.Context, end time.Time, args []any) (any, error) {
	cmd := newCommand(ctx, args)
	cmd.left.Store(true)
	go func() {
		r := &request{args: args, members: []*command{cmd}}
		process(context.WithoutCancel(ctx), c.client, []*request{r})
		r.deliver()
		cmd.done <- struct{}{}
	}()
	return cmd.await(ctx, time.Until(end))
}
