package protocol

import "testing"

// nodeHistories runs the model and returns how many histories were violated, with
// the first violation.
func nodeHistories(n int, without NodeRule) (violated, granted, announced int, first string) {
	for seed := range n {
		q := NewNodeQueue(uint64(seed), 3+seed%8, without)
		q.Run(600)
		granted, announced = granted+q.Granted, announced+q.ByAnnouncement
		if len(q.Violations) > 0 {
			if violated++; first == "" {
				first = q.Violations[0]
			}
		}
	}
	return violated, granted, announced, first
}

func TestNodeQueueHolds(t *testing.T) {
	violated, granted, announced, first := nodeHistories(*histories, 0)
	if violated > 0 {
		t.Errorf("%d of %d histories: %s", violated, *histories, first)
	}
	if announced < granted/10 {
		t.Errorf("%d requests found their predecessor by an announcement, of %d grants: the model does not show that", announced, granted)
	}
	t.Logf("%d histories, %d grants, %d predecessors by announcement", *histories, granted, announced)
}

// Each rule of the queue is needed.
func TestNodeQueueNeedsItsRules(t *testing.T) {
	for name, rule := range map[string]NodeRule{
		"VersionBefore": VersionBefore, "VersionOfItsOwn": VersionOfItsOwn,
		"OneOfSeveral": OneOfSeveral, "GoneBeforeWatched": GoneBeforeWatched, "WritersFindReaders": WritersFindReaders, "HoldersSignal": HoldersSignal, "FastLeaves": FastLeaves,
		"WaitersHaveNodes": WaitersHaveNodes,
	} {
		violated, _, _, first := nodeHistories(2000, rule)
		if violated == 0 {
			t.Errorf("without %s no history is violated", name)
		}
		t.Logf("without %s %d of 2000: %s", name, violated, first)
	}
}
