package redis

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"hash"
	"strings"
	"sync"
)

// A mac proves that an id was made by this client for one lock. Messages come on
// channels whose names are public, from whoever may publish: what names no id that
// the client has made is not from the server's scripts, which read it in the lock's
// keys.
type mac [8]byte

// A maker proves ids by a secret of its own.
type maker struct{ hashes sync.Pool }

// A keyed hash with room for what it is given and what it returns.
type keyed struct {
	hash.Hash
	in  []byte
	out []byte
}

func newMaker() *maker {
	secret := make([]byte, sha256.Size)
	_, _ = rand.Read(secret) // never fails
	return &maker{sync.Pool{New: func() any { return &keyed{Hash: hmac.New(sha256.New, secret)} }}}
}

// prove returns the proof of an id, of which open is all that comes before it, for a lock.
func (m *maker) prove(k key, open []byte) (p mac) {
	h := m.hashes.Get().(*keyed)
	defer m.hashes.Put(h)
	h.in = append(append(append(h.in[:0], k...), ' '), open...) // no key has a space
	h.Reset()
	_, _ = h.Write(h.in)
	h.out = h.Sum(h.out[:0])
	copy(p[:], h.out)
	return p
}

// made reports whether this client has made id for a lock.
func (m *maker) made(k key, id string) bool {
	open, proof, ok := cutLast(id, '.')
	if !ok || len(proof) != base64.RawURLEncoding.EncodedLen(len(mac{})) {
		return false
	}
	want := m.prove(k, []byte(open))
	return hmac.Equal(want.appendTo(nil), []byte(proof))
}

func (p mac) appendTo(b []byte) []byte { return base64.RawURLEncoding.AppendEncode(b, p[:]) }

// parseHint reads what a script makes of an id that it tells before it is granted, when
// nobody else shall know it: what comes before the proof, and a digest of the whole.
func parseHint(s string) (open, digest string) {
	open, digest, _ = strings.Cut(s, " ")
	return open, digest
}

// isOf reports whether a digest is that of id.
func isOf(digest, id string) bool {
	sum := sha1.Sum([]byte(id))
	var room [2 * sha1.Size]byte
	return string(hex.AppendEncode(room[:0], sum[:])) == digest
}
