package backend

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

const (
	upperHex     = "0123456789ABCDEF"
	alphanumeric = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
)

// An Encoding maps names to keys of servers that allow certain bytes only. No two
// names map to the same text. NewEncoding makes it.
type Encoding struct {
	keeps  [256]bool // the bytes that stand for themselves
	escape byte
	cut    string // stands before the digest of a text that was cut
}

// NewEncoding returns the encoding in which letters, digits and the bytes of also
// stand for themselves, a dot only where it does not lead. Every other byte becomes
// escape and two upper-case hexadecimal digits. NewEncoding panics if escape is
// one of those that stand for themselves.
func NewEncoding(also string, escape byte) *Encoding {
	e := &Encoding{escape: escape, cut: string([]byte{escape, escape})}
	for _, c := range []byte(alphanumeric + also) {
		e.keeps[c] = true
	}
	if e.keeps[escape] {
		panic(fmt.Sprintf("dlock: NewEncoding: the escape %q stands for itself", escape))
	}
	return e
}

// standard is the encoding of EncodeName.
var standard = func() *Encoding {
	e := NewEncoding("-_.:@", '%')
	e.cut = "~"
	return e
}()

// Encode returns the key of name.
func (e *Encoding) Encode(name string) string {
	if e.plain(name) {
		return name
	}
	return string(e.Append(make([]byte, 0, len(name)+16), name))
}

// Append appends the key of name to b.
func (e *Encoding) Append(b []byte, name string) []byte {
	for i := range len(name) {
		c := name[i]
		if e.keeps[c] && (c != '.' || i > 0) {
			b = append(b, c)
			continue
		}
		b = append(b, e.escape, upperHex[c>>4], upperHex[c&15])
	}
	return b
}

// Decode returns the name that is encoded as text. It reports false if there is none,
// as of a text that was cut.
func (e *Encoding) Decode(text string) (name string, ok bool) {
	if e.plain(text) {
		return text, true
	}
	out := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		c := text[i]
		if c == e.escape && i+2 < len(text) {
			high, low := strings.IndexByte(upperHex, text[i+1]), strings.IndexByte(upperHex, text[i+2])
			if high < 0 || low < 0 {
				return "", false
			}
			c, i = byte(high<<4|low), i+2
		}
		out = append(out, c)
	}
	return string(out), string(e.Append(nil, string(out))) == text
}

// Short is Encode for places that limit the length of a key: a longer text is cut
// and ends in two escapes and the name's SHA-256 in hexadecimal. Limit must be at
// least 66.
func (e *Encoding) Short(name string, limit int) string {
	enc := e.Encode(name)
	if len(enc) <= limit {
		return enc
	}
	sum := sha256.Sum256([]byte(name))
	digest := e.cut + hex.EncodeToString(sum[:])
	return enc[:limit-len(digest)] + digest
}

func (e *Encoding) plain(name string) bool {
	for i := range len(name) {
		if !e.keeps[name[i]] {
			return false
		}
	}
	return !strings.HasPrefix(name, ".")
}

// EncodeName maps a name to one path element or key part. No two names map to
// the same text. Letters, digits and the bytes - _ . : @ stay as they are, so
// that plain names remain readable; every other byte, and a leading dot,
// becomes a percent sign and two upper-case hexadecimal digits. An [Encoding] is
// for servers that allow less.
func EncodeName(name string) string { return standard.Encode(name) }

// DecodeName returns the name of which text is the EncodeName. It reports false if there
// is none.
func DecodeName(text string) (name string, ok bool) { return standard.Decode(text) }

// AppendName appends EncodeName(name) to b.
func AppendName(b []byte, name string) []byte { return standard.Append(b, name) }

// ShortName is EncodeName for places that limit the length of a key: a longer
// text is cut and ends in a tilde and the name's SHA-256 in hexadecimal. Limit
// must be at least 65.
func ShortName(name string, limit int) string { return standard.Short(name, limit) }
