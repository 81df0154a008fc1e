package backend

import "strconv"

// An ID is that of a request, unlike any other in every process and for ever:
// a client, and its request of that number. It is a string only where a server
// has to be told.
type ID struct {
	Client string // not empty, of random letters and digits; no colon
	Seq    uint64
}

// AppendTo appends the text of id: its client, a colon and its number.
func (id ID) AppendTo(b []byte) []byte {
	b = append(b, id.Client...)
	b = append(b, ':')
	return strconv.AppendUint(b, id.Seq, 10)
}
