package keepalive

import "container/heap"

// A schedule is a heap of items, the one to be looked at next on top.
type schedule []date

// A date is when an item is looked at next. It has the moment beside it because
// items are many and lie far apart.
type date struct {
	at   moment
	item *Item
}

func (s schedule) Len() int           { return len(s) }
func (s schedule) Less(i, j int) bool { return s[i].at < s[j].at }

func (s schedule) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].item.index, s[j].item.index = int32(i+1), int32(j+1)
}

// Push implements heap.Interface.
func (s *schedule) Push(x any) {
	it := x.(*Item)
	*s = append(*s, date{it.next(), it})
	it.index = int32(len(*s))
}

// Pop implements heap.Interface.
func (s *schedule) Pop() any {
	last := len(*s) - 1
	it := (*s)[last].item
	(*s)[last] = date{}
	*s = (*s)[:last]
	it.index = 0
	return it
}

// add gives an item its date.
func (s *schedule) add(it *Item) { heap.Push(s, it) }

// move gives an item that has a date its next one.
func (s *schedule) move(it *Item) {
	(*s)[it.index-1].at = it.next()
	heap.Fix(s, int(it.index)-1)
}

// remove leaves an item without a date.
func (s *schedule) remove(it *Item) { heap.Remove(s, int(it.index)-1) }

// due returns the item on top if it is to be looked at now. Renewals may be early
// by a fifteenth of the TTL, so that many holds share a request.
func (s schedule) due(now moment) (it *Item, ok bool) {
	if len(s) == 0 {
		return nil, false
	}
	it = s[0].item
	if !it.inFlight && s[0].at == it.due {
		now += moment(it.hold.TTL / 15)
	}
	return it, s[0].at <= now
}
