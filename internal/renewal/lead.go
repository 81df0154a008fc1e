package renewal

const (
	// endCost is what ending one hold takes at most, with whoever waits for that. Where
	// so many end together that the last would be late, all are ended before their
	// deadline by the time that it would be late, but by no more than a leadPart of what
	// they had, and not at all if there are few.
	endCost     = moment(2000)
	smallClient = 1024
	leadPart    = 3

	// leadSpans is into how many parts the time until the last deadline is divided to see
	// how many end together.
	leadSpans = 64
)

// updateLead sets how long before their deadlines batches are ended. It computes the
// lead again after an eighth of the holds have come or were renewed, and allows for as
// many more at one moment.
func (k *Keeper) updateLead(at moment) {
	if k.changes <= k.count/8 && (k.count > smallClient || k.schedule.lead == 0) {
		return
	}
	k.changes = 0
	lead := moment(0)
	if k.count > smallClient {
		lead = k.backlog(at) + moment(k.count/8)*endCost
	}
	if lead > k.schedule.lead || lead < k.schedule.lead/2 {
		k.schedule.lead = lead * 9 / 8
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
	span := (last-at)/leadSpans + 1
	var ends [leadSpans]int
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
