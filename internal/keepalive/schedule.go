package keepalive

// A schedule is a heap of items, the one to be looked at next on top. It is
// container/heap without the interface, which costs more than the work.
type schedule []*Item

// push adds it at its next date.
func (s *schedule) push(it *Item) {
	it.at = it.next()
	*s = append(*s, it)
	s.up(len(*s)-1, it)
}

// pop takes the item on top.
func (s *schedule) pop() *Item {
	it := (*s)[0]
	s.remove(it)
	return it
}

// remove takes it out.
func (s *schedule) remove(it *Item) {
	i, last := int(it.index)-1, len(*s)-1
	moved := (*s)[last]
	(*s)[last] = nil
	*s = (*s)[:last]
	it.index = 0
	if moved == it {
		return
	}
	if i > 0 && moved.at < (*s)[(i-1)/2].at {
		s.up(i, moved)
	} else {
		s.down(i, moved)
	}
}

// up puts it at i, or at the place of an ancestor that comes after it.
func (s schedule) up(i int, it *Item) {
	for i > 0 {
		parent := (i - 1) / 2
		if s[parent].at <= it.at {
			break
		}
		s.put(i, s[parent])
		i = parent
	}
	s.put(i, it)
}

// down puts it at i, or at the place of a descendant that comes before it.
func (s schedule) down(i int, it *Item) {
	for {
		child := 2*i + 1
		if child >= len(s) {
			break
		}
		if other := child + 1; other < len(s) && s[other].at < s[child].at {
			child = other
		}
		if it.at <= s[child].at {
			break
		}
		s.put(i, s[child])
		i = child
	}
	s.put(i, it)
}

func (s schedule) put(i int, it *Item) {
	s[i] = it
	it.index = int32(i + 1)
}

// due reports whether the item on top is to be looked at now. Renewals may be
// early by a fifteenth of the TTL, so that many holds share a request.
func (s schedule) due(now moment) bool {
	if len(s) == 0 {
		return false
	}
	it := s[0]
	if it.at == it.due {
		now += moment(it.hold.TTL / 15)
	}
	return it.at <= now
}
