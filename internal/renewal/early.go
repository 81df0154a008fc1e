package renewal

import (
	"cmp"
	"slices"
)

const (
	// endCost is how long it takes at most to end one hold, its waiting callers included.
	// Where so many end together that the last would be late, all are ended earlier by
	// that time: at most by an earlyEndPart of their lease, and not at all if there are
	// few.
	endCost      = moment(2000)
	smallClient  = 1024
	earlyEndPart = 3
)

// updateEarlyEnd sets how long before their deadlines batches are ended. It does so again
// after an eighth of the holds have come or were renewed, and allows for as many more at
// one moment. While holds end it does not: those that are left would end later.
func (k *Keeper) updateEarlyEnd() {
	if len(k.losses) > 0 || k.changes <= k.count/8 && (k.count > smallClient || k.schedule.earlyEnd == 0) {
		return
	}
	k.changes = 0
	early := moment(0)
	if k.count > smallClient {
		early = k.backlog() + moment(k.count/8)*endCost
	}
	if early > k.schedule.earlyEnd || early < k.schedule.earlyEnd/2 {
		k.schedule.earlyEnd = early * 9 / 8
		k.schedule.rebuild()
	}
}

// backlog is how late the last hold would end if no renewal succeeded any more and
// each hold began to end at its deadline.
func (k *Keeper) backlog() (most moment) {
	var all []*batch
	for _, d := range k.schedule.dates {
		if d.batch.until != never {
			all = append(all, d.batch)
		}
	}
	slices.SortFunc(all, func(x, y *batch) int { return cmp.Compare(x.until, y.until) })
	var late, last moment
	for _, b := range all {
		late = max(late-(b.until-last), 0) + moment(len(b.items))*endCost
		last, most = b.until, max(most, late)
	}
	return most
}
