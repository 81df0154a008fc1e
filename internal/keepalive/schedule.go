package keepalive

// A schedule is a heap of items, the one to be looked at next on top.
type schedule []*Item

func (s schedule) Len() int           { return len(s) }
func (s schedule) Less(i, j int) bool { return s[i].at < s[j].at }

func (s schedule) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].index, s[j].index = int32(i+1), int32(j+1)
}

// Push implements heap.Interface.
func (s *schedule) Push(x any) {
	it := x.(*Item)
	it.at = it.next()
	*s = append(*s, it)
	it.index = int32(len(*s))
}

// Pop implements heap.Interface.
func (s *schedule) Pop() any {
	last := len(*s) - 1
	it := (*s)[last]
	(*s)[last] = nil
	*s = (*s)[:last]
	it.index = 0
	return it
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
