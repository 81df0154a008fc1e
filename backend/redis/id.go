package redis

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"hash"
	"math"
	"strconv"
	"strings"
	"sync"

	"github.com/dlock-go/dlock/backend"
)

// An entryID is what the id of one entry into the queue is made of. The id starts
// with what a script must know of the waiter it grants the lock to.
type entryID struct {
	request *backend.Request
	entry   int32 // how often the request had been in the queue before
	rejoin  int32 // for how many ms a server that is one of several must have kept its data
	reader  bool  // the mode of a request may change, an id does not
	polls   bool  // no message can tell of the grant
	mac     mac   // proves that this client has made the id
}

// text is the id as the server knows it. Knowing it allows the hold to be released.
func (i *entryID) text() string {
	var room [96]byte // most are shorter
	return string(i.mac.appendTo(append(i.appendOpen(room[:0]), '.')))
}

// appendOpen appends the part of the id that anybody could guess.
func (i *entryID) appendOpen(b []byte) []byte {
	if i.reader {
		b = append(b, 'r')
	} else {
		b = append(b, 'w')
	}
	b = strconv.AppendInt(b, millis(i.request.TTL), 10)
	if i.polls {
		b = append(b, 'p')
	}
	if i.rejoin > 0 {
		b = append(b, 'v')
		b = strconv.AppendInt(b, int64(i.rejoin), 10)
	}
	b = append(b, ':')
	b = i.request.ID.AppendTo(b)
	if i.entry > 0 {
		b = append(b, '+')
		b = strconv.AppendInt(b, int64(i.entry), 10)
	}
	if label := i.request.Label; label != "" {
		b = labelEncoding.Append(append(b, '='), label)
	}
	return b
}

// labelEncoding leaves out what means something in an id or a message.
var labelEncoding = backend.NewEncoding("-_/@", '%')

// parseRequestID returns the request whose id it may be.
func parseRequestID(id string) backend.ID {
	client, number, _ := splitID(id)
	number, _, _ = strings.Cut(number, "+")
	seq, _ := strconv.ParseUint(number, 10, 64) // no request has number 0
	return backend.ID{Client: client, Seq: seq}
}

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

func cutLast(s string, sep byte) (before, after string, found bool) {
	i := strings.LastIndexByte(s, sep)
	if i < 0 {
		return "", s, false
	}
	return s[:i], s[i+1:], true
}

// A mac proves that an id was made by this client for one lock. Messages come on
// channels whose names are public, from whoever may publish: a message that names no
// id of this client is not from the server's scripts, which read it in the lock's keys.
type mac [8]byte

func (m mac) appendTo(b []byte) []byte { return base64.RawURLEncoding.AppendEncode(b, m[:]) }

// An idSigner makes ids by a secret of its own.
type idSigner struct {
	hashes *sync.Pool // of *keyedHash: to make one costs more than to use it
}

// A keyedHash is an HMAC, with room for what goes in and comes out.
type keyedHash struct {
	hash.Hash
	text []byte
	sum  [sha256.Size]byte
}

func newIDSigner() idSigner {
	secret := make([]byte, sha256.Size)
	_, _ = rand.Read(secret) // never fails
	return idSigner{&sync.Pool{New: func() any { return &keyedHash{Hash: hmac.New(sha256.New, secret)} }}}
}

// sign returns the proof for the open part of an id, for one lock.
func (s idSigner) sign(k key, open []byte) (m mac) {
	h := s.hashes.Get().(*keyedHash)
	defer s.hashes.Put(h)
	h.text = append(append(append(h.text[:0], k...), ' '), open...) // no key has a space
	h.Reset()
	_, _ = h.Write(h.text)
	copy(m[:], h.Sum(h.sum[:0]))
	return m
}

// newID returns the id of an entry that request makes into the queue of a lock.
func (s idSigner) newID(k key, r *backend.Request, entry int32, polls bool, v *backend.Ballot) entryID {
	i := entryID{request: r, entry: entry, reader: r.Mode == backend.Shared, polls: polls}
	if v != nil {
		i.rejoin = int32(min(millis(v.Rejoin), math.MaxInt32))
	}
	var room [96]byte // most are shorter
	i.mac = s.sign(k, i.appendOpen(room[:0]))
	return i
}

// hasMade reports whether this client has made id for a lock.
func (s idSigner) hasMade(k key, id string) bool {
	open, proof, ok := cutLast(id, '.')
	if !ok || len(proof) != base64.RawURLEncoding.EncodedLen(len(mac{})) {
		return false
	}
	return hmac.Equal(s.sign(k, []byte(open)).appendTo(nil), []byte(proof))
}

// parseHint reads what a script tells of an id before it is granted, when nobody else
// shall know it: what comes before the proof, and a digest of the whole.
func parseHint(s string) (open, digest string) {
	open, digest, _ = strings.Cut(s, " ")
	return open, digest
}

// isDigest reports whether a digest is that of id.
func isDigest(digest, id string) bool {
	sum := sha1.Sum([]byte(id))
	return hex.EncodeToString(sum[:]) == digest
}
