package quorum

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// openGrace is how long Open waits for the other nodes once enough have answered, or too few
// can.
const openGrace = time.Second

// schemes are those of URLs, and of the nodes behind them.
var schemes = map[string]string{
	"redlock":  "redis",
	"redlocks": "rediss",
}

// port is that of a node for which the URL names none. It is here to tell
// whether two hosts are one server.
const port = "6379"

func init() {
	for scheme := range schemes {
		backend.Register(scheme, open)
	}
}

func open(ctx context.Context, cfg backend.Config) (backend.Backend, error) {
	o, err := takeOptions(cfg)
	if err != nil {
		return nil, err
	}
	need, err := o.need(len(cfg.URL.Hosts))
	if err != nil {
		return nil, err
	}
	if need < len(cfg.URL.Hosts) && cfg.TTL > o.maxTTL() {
		return nil, backend.Fail(backend.ErrInvalidTTL, fmt.Errorf("%v is more than dlock.maxttl, %v", cfg.TTL, o.maxTTL()))
	}
	nodes, err := openNodes(ctx, cfg, need)
	if err != nil {
		return nil, err
	}
	b, err := New(nodes, o)
	if err != nil {
		closeAll(ctx, nodes)
		return nil, err
	}
	if err := b.checkServers(ctx, cfg.URL.HostPorts(port)); err != nil {
		return nil, errors.Join(err, b.Close(ctx))
	}
	return b, nil
}

// takeOptions takes the parameters that are not the nodes'.
func takeOptions(cfg backend.Config) (*Options, error) {
	u := cfg.URL
	o := &Options{
		MaxTTL: u.Params.TakeDuration("dlock.maxttl", DefaultMaxTTL),
		Skew:   u.Params.TakeDuration("dlock.skew", DefaultSkew),
		Logger: cfg.Logger,
	}
	hosts := u.HostPorts(port)
	slices.Sort(hosts)
	if len(slices.Compact(hosts)) != len(u.Hosts) {
		return nil, invalid("a node is named twice: it would have two votes")
	}
	switch u.Params.Take("dlock.need", "majority") {
	case "majority":
	case "all":
		o.Need = len(u.Hosts)
	default:
		return nil, invalid("parameter dlock.need: want majority or all")
	}
	if o.MaxTTL < backend.MinTTL || o.Skew <= 0 {
		return nil, invalid("parameter dlock.maxttl or dlock.skew: too small")
	}
	return o, nil
}

// openNodes opens every node.
func openNodes(ctx context.Context, cfg backend.Config, need int) (nodes []backend.Backend, err error) {
	urls := cfg.URL.Each(schemes[cfg.URL.Scheme])
	if err := cfg.URL.Params.Done(); err != nil {
		return nil, err
	}
	for _, u := range urls {
		one := cfg
		one.URL, one.Member = u, need < len(urls)
		n, err := backend.Open(ctx, one)
		if err != nil {
			closeAll(ctx, nodes)
			return nil, err
		}
		nodes = append(nodes, n)
	}
	return nodes, nil
}

// A check is the outcome of a look at a node.
type check struct {
	node int
	err  error
}

// checkServers looks at all nodes that were not when they were opened. A setting that one
// of them refuses is an error; one that does not answer yet is none, if enough others
// do.
func (b *Backend) checkServers(ctx context.Context, names []string) error {
	results := make(chan check, len(b.nodes))
	checking, stop := context.WithCancel(context.WithoutCancel(ctx))
	b.stopChecking = stop
	for i, n := range b.nodes {
		look, ok := n.Backend.(interface{ CheckServer(context.Context) error })
		if !ok || b.needsAll() {
			results <- check{i, nil}
			continue
		}
		b.janitor.Go(func(context.Context) { results <- check{i, look.CheckServer(checking)} })
	}
	errs, err := b.awaitNodes(ctx, results, names)
	for i := range errs {
		if err == nil && errs[i] != nil {
			b.nodes[i].silent.Store(true)
			b.log.Warn("dlock: a node of the quorum does not answer yet", "error", errs[i])
		}
	}
	return err
}

// awaitNodes waits for the first answers of the nodes, or until it is known whether there
// are enough, and a little longer, if ctx allows. It returns why the others do not answer.
func (b *Backend) awaitNodes(ctx context.Context, results <-chan check, names []string) (errs []error, err error) {
	for _, name := range names {
		errs = append(errs, fmt.Errorf("%s: %w", name, errOverdue))
	}
	var decided <-chan time.Time
	open, left := 0, len(b.nodes)
	for over := false; left > 0 && !(over && len(results) == 0); { // who has answered is not silent
		select {
		case r := <-results:
			left--
			switch {
			case r.err == nil:
				open++
				errs[r.node] = nil
			case kindOf(r.err) != backend.ErrUnavailable:
				return nil, r.err
			default:
				errs[r.node] = fmt.Errorf("%s: %w", names[r.node], r.err)
			}
			if decided == nil && (open == b.need || left+open < b.need) {
				decided = time.After(openGrace)
			}
		case <-decided:
			over = true
		case <-ctx.Done():
			over = true
		}
	}
	if open < b.need && left > 0 && ctx.Err() != nil {
		return nil, backend.WaitEnded(ctx, false)
	}
	if open < b.need {
		return nil, backend.Fail(backend.ErrUnavailable, fmt.Errorf("too few nodes answer: %w", errors.Join(errs...)))
	}
	return errs, nil
}

func closeAll(ctx context.Context, nodes []backend.Backend) {
	for _, n := range nodes {
		_ = n.Close(ctx)
	}
}
