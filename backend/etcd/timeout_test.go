package etcd

import (
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/dlock-go/dlock/backend"
)

// TestTimeoutLeavesTimeForEachMember adds up the timeouts of requests that nobody answers:
// each member of the cluster is asked before an acquisition fails.
func TestTimeoutLeavesTimeForEachMember(t *testing.T) {
	for _, answered := range []bool{false, true} {
		client, err := clientv3.New(clientv3.Config{Endpoints: []string{"127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"}, Logger: zap.NewNop()})
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		b := New(client, nil)
		if answered {
			b.answered(time.Now().Add(-10 * time.Millisecond))
		}
		var sum time.Duration
		for range 3 {
			sum += b.timeout()
			b.late()
		}
		if sum > backend.FirstAnswer {
			t.Errorf("three requests take up to %v, an acquisition may take %v", sum, backend.FirstAnswer)
		}
		if again := b.timeout(); answered && again <= time.Second {
			t.Errorf("after a round without an answer the timeout is %v", again)
		}
	}
}
