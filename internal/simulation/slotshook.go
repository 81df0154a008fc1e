package simulation

import (
	"context"
	"errors"

	goredis "github.com/redis/go-redis/v9"
)

var errNoMasters = errors.New("the cluster names no master")

// A slotsHook is that of the nodes of a cluster in clients that redis.Open makes: one that names nobody has failed.
type slotsHook struct{}

// DialHook implements goredis.Hook.
func (slotsHook) DialHook(next goredis.DialHook) goredis.DialHook { return next }

// ProcessHook implements goredis.Hook.
func (slotsHook) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		err := next(ctx, cmd)
		if slots, is := cmd.(*goredis.ClusterSlotsCmd); is && err == nil && len(slots.Val()) == 0 {
			cmd.SetErr(errNoMasters)
			return errNoMasters
		}
		return err
	}
}

// ProcessPipelineHook implements goredis.Hook.
func (slotsHook) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return next
}
