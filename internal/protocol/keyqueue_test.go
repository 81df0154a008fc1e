package protocol

import "testing"

// keyHistories runs the model and returns how many histories were violated, with
// the first violation.
func keyHistories(n int, without KeyRule) (violated, granted, byEvent int, first string) {
	for seed := range n {
		q := NewKeyQueue(uint64(seed), 2+seed%5, without)
		q.Run(400)
		granted, byEvent = granted+q.Granted, byEvent+q.ByEvent
		if len(q.Violations) > 0 {
			if violated++; first == "" {
				first = q.Violations[0]
			}
		}
	}
	return violated, granted, byEvent, first
}

func TestKeyQueueHolds(t *testing.T) {
	violated, granted, byEvent, first := keyHistories(*histories, 0)
	if violated > 0 {
		t.Errorf("%d of %d histories: %s", violated, *histories, first)
	}
	if byEvent < granted/10 {
		t.Errorf("%d of %d grants were by an event alone: the model does not show that", byEvent, granted)
	}
	t.Logf("%d histories, %d grants, %d by an event alone", *histories, granted, byEvent)
}

// Each rule of the queue is needed.
func TestKeyQueueNeedsItsRules(t *testing.T) {
	for name, rule := range map[string]KeyRule{
		"WritersMark": WritersMark, "LookAfterGone": LookAfterGone, "LookAfterWatch": LookAfterWatch,
		"FreshNames": FreshNames, "DeleteAsSeen": DeleteAsSeen, "FormerWriters": FormerWriters,
		"JoinsMoveTails": JoinsMoveTails, "BothTails": BothTails, "WaitersHaveKeys": WaitersHaveKeys,
	} {
		violated, _, _, first := keyHistories(2000, rule)
		if violated == 0 {
			t.Errorf("without %s no history is violated", name)
		}
		t.Logf("without %s %d of 2000: %s", name, violated, first)
	}
}
