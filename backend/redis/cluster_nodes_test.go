package redis

import (
	"testing"

	"github.com/redis/go-redis/v9"
)

// TestNodesThatLeave has the nodes of a cluster come to other addresses again and again, as pods do. No
// more than some are kept, those among them that are asked.
func TestNodesThatLeave(t *testing.T) {
	t.Parallel()
	c := newCluster(nil, 0)
	connect := func() (*redis.Client, *pipeline) {
		node := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
		t.Cleanup(func() { _ = node.Close() })
		return node, c.connect(node)
	}
	busy, asked := connect()
	asked.senders = 1
	for range 4 * maxPipelines {
		if node, p := connect(); c.connect(node) != p {
			t.Fatal("a node has two pipelines")
		}
	}
	kept := 0
	c.masters.Range(func(any, any) bool { kept++; return true })
	if kept > maxPipelines || kept != int(c.kept.Load()) {
		t.Errorf("%d pipelines are kept, and counted %d", kept, c.kept.Load())
	}
	if c.connect(busy) != asked {
		t.Error("a pipeline that is in use was forgotten")
	}
}
