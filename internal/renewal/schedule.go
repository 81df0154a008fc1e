package renewal

import "slices"

// A schedule is a heap of batches; the one that is due next is on top. Each node has
// four children instead of two: half the levels, and fewer batches to touch that lie
// apart in memory.
type schedule struct {
	dates    []date
	earlyEnd moment // how long before their deadline batches are ended
}

const below = 4

// A date is when a batch is looked at next.
type date struct {
	at    moment
	batch *batch
}

// add gives a batch its date.
func (s *schedule) add(b *batch) {
	s.dates = append(s.dates, date{})
	s.up(len(s.dates)-1, date{b.next(s.earlyEnd), b})
}

// move gives a batch that has a date its next one.
func (s *schedule) move(b *batch) { s.reposition(int(b.index)-1, date{b.next(s.earlyEnd), b}) }

// remove leaves a batch without a date.
func (s *schedule) remove(b *batch) {
	i, last := int(b.index)-1, len(s.dates)-1
	d := s.dates[last]
	s.dates[last] = date{}
	s.dates = s.dates[:last]
	if i < last {
		s.reposition(i, d)
	}
	b.index = 0
	if cap(s.dates) > 1024 && last < cap(s.dates)/4 {
		s.dates = slices.Clone(s.dates)
	}
}

// rebuild gives every batch its date anew.
func (s *schedule) rebuild() {
	all := s.dates
	s.dates = make([]date, 0, len(all))
	for _, d := range all {
		s.add(d.batch)
	}
}

// reposition puts d where it belongs, starting at the free place i.
func (s *schedule) reposition(i int, d date) {
	if i > 0 && d.at < s.dates[(i-1)/below].at {
		s.up(i, d)
	} else {
		s.down(i, d)
	}
}

func (s *schedule) up(i int, d date) {
	for i > 0 {
		above := (i - 1) / below
		if s.dates[above].at <= d.at {
			break
		}
		s.put(i, s.dates[above])
		i = above
	}
	s.put(i, d)
}

func (s *schedule) down(i int, d date) {
	for {
		least := below*i + 1
		if least >= len(s.dates) {
			break
		}
		for j := least + 1; j < min(below*(i+1)+1, len(s.dates)); j++ {
			if s.dates[j].at < s.dates[least].at {
				least = j
			}
		}
		if d.at <= s.dates[least].at {
			break
		}
		s.put(i, s.dates[least])
		i = least
	}
	s.put(i, d)
}

func (s *schedule) put(i int, d date) {
	s.dates[i] = d
	d.batch.index = int32(i + 1)
}

// first is the date on top, never if there is none.
func (s *schedule) first() moment {
	if len(s.dates) == 0 {
		return never
	}
	return s.dates[0].at
}

// due returns the batch on top if it is to be looked at now.
func (s *schedule) due(now moment) (b *batch, ok bool) {
	if s.first() > now || len(s.dates) == 0 {
		return nil, false
	}
	return s.dates[0].batch, true
}

// dueSoon returns the batch on top if its renewal is due within a fifteenth of its
// lease, so that it may share a request with others.
func (s *schedule) dueSoon(now moment) (b *batch, ok bool) {
	if len(s.dates) == 0 {
		return nil, false
	}
	b = s.dates[0].batch
	return b, s.dates[0].at == b.due && b.due <= now+moment(b.lease/15)
}
