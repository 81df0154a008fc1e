package renewal

import (
	"container/heap"
	"slices"
)

// A schedule is a heap of batches; the one that is due next is on top.
type schedule struct {
	dates    dates
	earlyEnd moment // how long before their deadline batches are ended
}

// A date is when a batch is looked at next.
type date struct {
	at    moment
	batch *batch
}

// dates implements heap.Interface.
type dates []date

func (d dates) Len() int           { return len(d) }
func (d dates) Less(i, j int) bool { return d[i].at < d[j].at }

func (d dates) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].batch.index, d[j].batch.index = int32(i+1), int32(j+1)
}

func (d *dates) Push(x any) {
	*d = append(*d, x.(date))
	x.(date).batch.index = int32(len(*d))
}

func (d *dates) Pop() any {
	last := len(*d) - 1
	(*d)[last].batch.index = 0
	(*d)[last] = date{}
	*d = (*d)[:last]
	return nil
}

// add gives a batch its date.
func (s *schedule) add(b *batch) { heap.Push(&s.dates, date{b.next(s.earlyEnd), b}) }

// move gives a batch that has a date its next one.
func (s *schedule) move(b *batch) {
	s.dates[b.index-1].at = b.next(s.earlyEnd)
	heap.Fix(&s.dates, int(b.index-1))
}

// remove leaves a batch without a date.
func (s *schedule) remove(b *batch) {
	heap.Remove(&s.dates, int(b.index-1))
	if n := len(s.dates); cap(s.dates) > 1024 && n < cap(s.dates)/4 {
		s.dates = slices.Clone(s.dates)
	}
}

// rebuild gives every batch its date anew.
func (s *schedule) rebuild() {
	for i, d := range s.dates {
		s.dates[i].at = d.batch.next(s.earlyEnd)
	}
	heap.Init(&s.dates)
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
