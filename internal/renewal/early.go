package renewal

const (
	// endCost is how long it takes at most to end one hold, its waiting callers included.
	// Where so many end together that the last would be late, all are ended earlier by
	// that time: at most by an earlyEndPart of their lease, and not at all if there are
	// few.
	endCost      = moment(2000)
	smallClient  = 1024
	earlyEndPart = 3

	// earlyEndSpans is into how many parts the time until the last deadline is divided to
	// see how many holds end together.
	earlyEndSpans = 64
)

// updateEarlyEnd sets how long before their deadlines batches are ended. It does so again
// after an eighth of the holds have come or were renewed, and allows for as many more at
// one moment. While holds end it does not: those that are left would end later.
func (k *Keeper) updateEarlyEnd(at moment) {
	if len(k.losses) > 0 || k.changes <= k.count/8 && (k.count > smallClient || k.schedule.earlyEnd == 0) {
		return
	}
	k.changes = 0
	early := moment(0)
	if k.count > smallClient {
		early = k.backlog(at) + moment(k.count/8)*endCost
	}
	if early > k.schedule.earlyEnd || early < k.schedule.earlyEnd/2 {
		k.schedule.earlyEnd = early * 9 / 8
		k.schedule.rebuild()
	}
}

// backlog is how late the last hold would end if no renewal succeeded any more and
// each hold began to end at its deadline.
func (k *Keeper) backlog(at moment) (most moment) {
	last := at
	for _, d := range k.schedule.dates {
		if d.batch.until != never {
			last = max(last, d.batch.until)
		}
	}
	span := (last-at)/earlyEndSpans + 1
	var ends [earlyEndSpans]int
	for _, d := range k.schedule.dates {
		if b := d.batch; b.until != never {
			ends[max(b.until-at, 0)/span] += len(b.items)
		}
	}
	late := moment(0)
	for _, n := range ends {
		late += moment(n) * endCost
		most = max(most, late)
		late = max(late-span, 0)
	}
	return most
}
