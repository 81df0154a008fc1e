package zk

import (
	"testing"
	"time"

	gozk "github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/internal/faultnet"
)

// TestLookIsNoOlderThanItsRequest asks for a look while another is under way, which may not
// have what happened since.
func TestLookIsNoOlderThanItsRequest(t *testing.T) {
	addr, p, own, dir := proxiedQueue(t)
	_, other := sessionAt(t, addr)
	listed := make(chan struct{}, 10)
	p.OnRequest(func(_ int, req []byte) {
		if codeOf(req) == getChildren {
			listed <- struct{}{}
		}
	})
	answers := make(chan queue, 2)
	share := func() {
		q, err := own.share(dir)
		if err != nil {
			t.Error(err)
		}
		answers <- q
	}
	p.Delay(faultnet.ToClient, 500*time.Millisecond, 0)
	go share()
	<-listed
	for p.Stats().Owed > 0 { // the server answers
		time.Sleep(time.Millisecond)
	}
	acl := gozk.WorldACL(gozk.PermAll)
	if _, err := other.client.Create(dir+"/"+newGUID()+"-w-", nil, gozk.FlagEphemeralSequential, acl); err != nil {
		t.Fatal(err)
	}
	go share()
	if n := len(<-answers); n != 0 {
		t.Errorf("the look before finds %d", n)
	}
	if n := len(<-answers); n != 1 {
		t.Errorf("the look after finds %d", n)
	}
}
