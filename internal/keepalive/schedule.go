package keepalive

// A schedule is a heap of lots, the one to be looked at next on top. Each has
// four below it: with two, as usual, there are twice as many levels, and on each
// that a lot passes it moves another, which lies elsewhere in memory.
type schedule []date

const below = 4

// A date is when a lot is looked at next.
type date struct {
	at  moment
	lot *lot
}

// add gives a lot its date.
func (s *schedule) add(l *lot) {
	*s = append(*s, date{})
	s.up(len(*s)-1, date{l.next(), l})
}

// move gives a lot that has a date its next one.
func (s schedule) move(l *lot) { s.settle(int(l.index)-1, date{l.next(), l}) }

// remove leaves a lot without a date.
func (s *schedule) remove(l *lot) {
	i, last := int(l.index)-1, len(*s)-1
	d := (*s)[last]
	(*s)[last] = date{}
	*s = (*s)[:last]
	if i < last {
		s.settle(i, d)
	}
	l.index = 0
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
	d.lot.index = int32(i + 1)
}

// due returns the lot on top if it is to be looked at now. Renewals may be early
// by a fifteenth of the TTL, so that many holds share a request.
func (s schedule) due(now moment) (l *lot, ok bool) {
	if len(s) == 0 {
		return nil, false
	}
	l = s[0].lot
	if s[0].at == l.due {
		now += moment(l.ttl / 15)
	}
	return l, s[0].at <= now
}
