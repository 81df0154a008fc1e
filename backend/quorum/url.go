package quorum

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// straggler is how long Open waits for the other nodes once enough have
// answered.
const straggler = time.Second

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
	nodes, err := openNodes(ctx, cfg, need)
	if err != nil {
		return nil, err
	}
	b, err := New(nodes, o)
	if err != nil {
		closeAll(ctx, nodes)
	}
	return b, err
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

// openNodes opens every node. A setting that one of them refuses is an error;
// one that does not answer yet is none, if enough others do.
func openNodes(ctx context.Context, cfg backend.Config, need int) ([]backend.Backend, error) {
	var late []*lateNode
	results := make(chan error, len(cfg.URL.Hosts))
	urls := cfg.URL.Each(schemes[cfg.URL.Scheme])
	if err := cfg.URL.Params.Done(); err != nil {
		return nil, err
	}
	for _, u := range urls {
		one := cfg
		one.URL, one.Member = u, need < len(cfg.URL.Hosts)
		late = append(late, beginOpen(ctx, one, results))
	}
	err := awaitNodes(ctx, results, len(late), need)
	nodes := make([]backend.Backend, len(late))
	for i, l := range late {
		nodes[i] = l
		if b := l.opened(); b != nil {
			nodes[i] = b
		} else if err == nil {
			cfg.Logger.Warn("dlock: a node of the quorum does not answer yet", "node", urls[i].String())
		}
	}
	if err != nil {
		closeAll(ctx, nodes)
		return nil, err
	}
	return nodes, nil
}

// awaitNodes waits for the first answers of n nodes, or of as many as are needed
// and a little longer.
func awaitNodes(ctx context.Context, results <-chan error, n, need int) error {
	var errs []error
	var enough <-chan time.Time
	for open := 0; n > 0; n-- {
		select {
		case err := <-results:
			switch {
			case err == nil:
				open++
			case kindOf(err) != backend.ErrUnavailable:
				return err
			default:
				errs = append(errs, err)
			}
			if n-1+open < need {
				return backend.Fail(backend.ErrUnavailable, fmt.Errorf("too few nodes answer: %w", errors.Join(errs...)))
			}
			if open == need {
				enough = time.After(straggler)
			}
		case <-enough:
			return nil
		case <-ctx.Done():
			return backend.WaitEnded(ctx, false)
		}
	}
	return nil
}

func closeAll(ctx context.Context, nodes []backend.Backend) {
	for _, n := range nodes {
		_ = n.Close(ctx)
	}
}
