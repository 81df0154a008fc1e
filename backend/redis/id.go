package redis

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"math"
	"strconv"
	"strings"

	"github.com/dlock-go/dlock/backend"
)

// An idSigner is a secret of one client. With it the client makes ids and proves that it has
// made them. Messages come on channels whose names are public, from whoever may publish: a
// message that names no id of this client is not from the server's scripts, which read the
// ids in the lock's keys.
type idSigner [sha256.Size]byte

func newIDSigner() *idSigner {
	s := new(idSigner)
	_, _ = rand.Read(s[:]) // never fails
	return s
}

// newID returns the id of an entry that r makes into the queue of a lock, after as many
// entries before. It begins with what a script must know of the waiter it grants the lock
// to: the mode of a request may change, its id does not. Polls says that no message can tell
// of the grant, v that the server is one of several that decide together: such a hold is not
// handed on. Knowing an id allows the hold to be released.
func (s *idSigner) newID(k key, r *backend.Request, entries int, polls bool, v *backend.Ballot) string {
	b := append(make([]byte, 0, 96), 'w')
	if r.Mode == backend.Shared {
		b[0] = 'r'
	}
	b = strconv.AppendInt(b, millis(r.TTL), 10)
	if polls {
		b = append(b, 'p')
	}
	if v != nil {
		b = append(b, 'v')
		b = strconv.AppendInt(b, min(millis(v.Rejoin), math.MaxInt32), 10)
	}
	b = r.ID.AppendTo(append(b, ':'))
	if entries > 0 {
		b = append(b, '+')
		b = strconv.AppendInt(b, int64(entries), 10)
	}
	if r.Label != "" {
		b = labelEncoding.Append(append(b, '='), r.Label)
	}
	return string(s.appendProof(append(b, '.'), k, b))
}

// appendProof appends what proves the open part of an id, for one lock: 64 bits of an HMAC.
func (s *idSigner) appendProof(b []byte, k key, open []byte) []byte {
	h := hmac.New(sha256.New, s[:])
	for _, part := range [][]byte{[]byte(k), {' '}, open} { // no key has a space
		_, _ = h.Write(part)
	}
	return base64.RawURLEncoding.AppendEncode(b, h.Sum(nil)[:8])
}

// hasMade reports whether this client has made id for a lock.
func (s *idSigner) hasMade(k key, id string) bool {
	open, proof, ok := cutLast(id, '.')
	return ok && hmac.Equal(s.appendProof(nil, k, []byte(open)), []byte(proof))
}

// openPart is the part of an id that anybody could guess: all but the proof.
func openPart(id string) string {
	open, _, _ := cutLast(id, '.')
	return open
}

// labelEncoding leaves out what means something in an id or a message.
var labelEncoding = backend.NewEncoding("-_/@", '%')

// splitID returns the client of an id, the numbers of request and entry, and the label
// as it is encoded.
func splitID(id string) (client, number, label string) {
	id, _, _ = strings.Cut(id, ".")
	rest, end, _ := cutLast(id, ':')
	_, client, _ = strings.Cut(rest, ":")
	number, label, _ = strings.Cut(end, "=")
	return client, number, label
}

// partyOf is what an id says of its owner. It leaves out all that proves the id.
func partyOf(id string) backend.Party {
	client, _, text := splitID(id)
	label, _ := labelEncoding.Decode(text)
	p := backend.Party{Client: client, Label: label, Mode: backend.Exclusive}
	if strings.HasPrefix(id, "r") {
		p.Mode = backend.Shared
	}
	return p
}

// ttlOf returns the TTL in an id, in ms.
func ttlOf(id string) (ttl int64) {
	for i := 1; i < len(id) && '0' <= id[i] && id[i] <= '9' && ttl < exact; i++ {
		ttl = 10*ttl + int64(id[i]-'0')
	}
	return ttl
}

func cutLast(s string, sep byte) (before, after string, found bool) {
	i := strings.LastIndexByte(s, sep)
	if i < 0 {
		return "", s, false
	}
	return s[:i], s[i+1:], true
}

// A digest stands for an id that nobody else shall know.
type digest [sha1.Size]byte

func digestOf(id string) digest { return sha1.Sum([]byte(id)) }

// parseHint reads what a script tells of an id before it is granted: what comes before the
// proof, and the digest of the whole.
func parseHint(s string) (open string, d digest, ok bool) {
	open, text, _ := strings.Cut(s, " ")
	if hex.DecodedLen(len(text)) != len(d) {
		return "", d, false
	}
	_, err := hex.Decode(d[:], []byte(text))
	return open, d, err == nil
}
