package simulation

import (
	"strings"
	"testing"
)

// A request is the same when it queues anew, and whether it polls or is told.
func TestRequestOf(t *testing.T) {
	client := strings.Repeat("0", 32)
	for _, id := range []string{":9.proof", "p:9=label.proof", ":9+1=label.proof", "p:9+2.proof"} {
		kind, rest, _ := strings.Cut(id, ":")
		if got := requestOf("r30000" + kind + ":" + client + ":" + rest); got != "r30000:"+client+":9" {
			t.Errorf("%s: %s", id, got)
		}
	}
	if a, b := requestOf("w1pv20:"+client+":1.x"), requestOf("w1v20:"+client+":2.x"); a == b || a != "w1v20:"+client+":1" {
		t.Error(a, b)
	}
}
