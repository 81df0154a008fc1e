package redis

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// A slotsHook is that of the nodes of a cluster. One that was taken out of the cluster lives on and answers, and
// names nobody when it is asked who has which slots. The client library would send each request to any node after
// that, until it asks another: here it takes the answer for a failure, and goes on to the next node at once.
type slotsHook struct{}

// DialHook implements redis.Hook.
func (slotsHook) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (slotsHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if slots, is := cmd.(*redis.ClusterSlotsCmd); is && err == nil && len(slots.Val()) == 0 {
			cmd.SetErr(errNoMasters)
			return errNoMasters
		}
		return err
	}
}

// ProcessPipelineHook implements redis.Hook.
func (slotsHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
