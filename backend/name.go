package backend

import (
	"crypto/sha256"
	"encoding/hex"
)

const upperHex = "0123456789ABCDEF"

// EncodeName maps a name to one path element or key part. No two names map to
// the same text. Letters, digits and the bytes - _ . : @ stay as they are, so
// that plain names remain readable; every other byte, and a leading dot,
// becomes a percent sign and two upper-case hexadecimal digits.
func EncodeName(name string) string {
	if plain(name) {
		return name
	}
	return string(AppendName(make([]byte, 0, len(name)+16), name))
}

// AppendName appends EncodeName(name) to b.
func AppendName(b []byte, name string) []byte {
	for i := range len(name) {
		c := name[i]
		if unreserved[c] && (c != '.' || i > 0) {
			b = append(b, c)
			continue
		}
		b = append(b, '%', upperHex[c>>4], upperHex[c&15])
	}
	return b
}

// ShortName is EncodeName for places that limit the length of a key: a longer
// text is cut and ends in a tilde and the name's SHA-256 in hexadecimal. Limit
// must be at least 65.
func ShortName(name string, limit int) string {
	enc := EncodeName(name)
	if len(enc) <= limit {
		return enc
	}
	sum := sha256.Sum256([]byte(name))
	digest := hex.EncodeToString(sum[:])
	return enc[:limit-len(digest)-1] + "~" + digest
}

func plain(name string) bool {
	for i := range len(name) {
		if !unreserved[name[i]] {
			return false
		}
	}
	return name == "" || name[0] != '.'
}

// unreserved are the bytes that stand for themselves.
var unreserved = func() (is [256]bool) {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	for _, c := range []byte(letters + "0123456789-_.:@") {
		is[c] = true
	}
	return is
}()
