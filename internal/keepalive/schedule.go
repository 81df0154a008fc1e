package keepalive

// A schedule is a heap of items, the one to be looked at next on top. Each has
// four below it: with two, as usual, there are twice as many levels, and on each
// that an item passes it moves another, which lies elsewhere in memory.
type schedule []date

const below = 4

// A date is when an item is looked at next. It has the moment beside it because
// items are many and lie far apart.
type date struct {
	at   moment
	item *Item
}

// add gives an item its date.
func (s *schedule) add(it *Item) {
	*s = append(*s, date{})
	s.up(len(*s)-1, date{it.next(), it})
}

// move gives an item that has a date its next one.
func (s schedule) move(it *Item) { s.settle(int(it.index)-1, date{it.next(), it}) }

// remove leaves an item without a date.
func (s *schedule) remove(it *Item) {
	i, last := int(it.index)-1, len(*s)-1
	d := (*s)[last]
	(*s)[last] = date{}
	*s = (*s)[:last]
	if i < last {
		s.settle(i, d)
	}
	it.index = 0
}

// settle puts d where it belongs, seen from the free place i.
func (s schedule) settle(i int, d date) {
	if i > 0 && d.at < s[(i-1)/below].at {
		s.up(i, d)
	} else {
		s.down(i, d)
	}
}

func (s schedule) up(i int, d date) {
	for i > 0 {
		above := (i - 1) / below
		if s[above].at <= d.at {
			break
		}
		s.put(i, s[above])
		i = above
	}
	s.put(i, d)
}

func (s schedule) down(i int, d date) {
	for {
		least := below*i + 1
		if least >= len(s) {
			break
		}
		for j := least + 1; j < min(below*(i+1)+1, len(s)); j++ {
			if s[j].at < s[least].at {
				least = j
			}
		}
		if d.at <= s[least].at {
			break
		}
		s.put(i, s[least])
		i = least
	}
	s.put(i, d)
}

func (s schedule) put(i int, d date) {
	s[i] = d
	d.item.index = int32(i + 1)
}

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
