package faultnet

// Framing tells where requests and replies end in a protocol. It is called once
// for each connection, so that its splitters can keep state. [RESP], [Postgres],
// [ZooKeeper] and [HTTP2] are framings.
type Framing func() (requests, replies Splitter)

// Splitter finds the first unit of b, the bytes of one direction that belong to
// no earlier unit. A unit of size 0 means that b does not hold a whole one yet.
// False means that b is not the protocol: the rest of that direction is then
// forwarded without being looked at.
type Splitter func(b []byte) (u Unit, ok bool)

// Unit is the smallest part of a protocol that stands alone.
type Unit struct {
	Size   int    // bytes, its header included
	Counts bool   // it is a request, or completes a reply
	Stream uint32 // replies answer the requests of their stream in order
}

// stream cuts the bytes of one direction into units.
type stream struct {
	split   Splitter
	pending []byte
	foreign bool // the bytes are not the protocol
}

func (s *stream) add(b []byte) {
	if !s.foreign {
		s.pending = append(s.pending, b...)
	}
}

// next takes the next whole unit. Its bytes are valid until add.
func (s *stream) next() (u Unit, raw []byte, ok bool) {
	if len(s.pending) == 0 {
		return Unit{}, nil, false
	}
	u, ok = s.split(s.pending)
	if !ok {
		s.foreign, s.pending = true, nil
		return Unit{}, nil, false
	}
	if u.Size == 0 {
		return Unit{}, nil, false
	}
	raw = s.pending[:u.Size]
	s.pending = s.pending[u.Size:]
	return u, raw, true
}

// rest returns how many bytes wait for the rest of their unit.
func (s *stream) rest() int { return len(s.pending) }
