package backend

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
)

// A Secret is text that nothing prints, such as a URL with a password in it: not fmt,
// slog, JSON, YAML, nor what looks at a struct by reflection, as fmt does at a field
// that is not exported, or a comparison that follows pointers. It decodes from plain
// text, and two can be compared. The zero value is empty.
type Secret struct{ sealed string }

var (
	_ encoding.TextUnmarshaler = (*Secret)(nil)
	_ encoding.TextMarshaler   = Secret{}
	_ fmt.Formatter            = Secret{}
	_ fmt.GoStringer           = Secret{}
	_ slog.LogValuer           = Secret{}
)

// masked is what is printed of a secret that is not empty.
const masked = "[secret]"

// NewSecret returns text as a Secret.
func NewSecret(text string) Secret {
	if text == "" {
		return Secret{}
	}
	digest := hmac.New(sha256.New, sealKey)
	digest.Write([]byte(text))
	iv := digest.Sum(nil)[:aes.BlockSize]
	return Secret{base64.RawStdEncoding.EncodeToString(append(iv, crypt(iv, []byte(text))...))}
}

// Reveal returns the text.
func (s Secret) Reveal() string {
	if s.IsZero() {
		return ""
	}
	sealed, _ := base64.RawStdEncoding.DecodeString(s.sealed)
	return string(crypt(sealed[:aes.BlockSize], sealed[aes.BlockSize:]))
}

// sealKey is what this process seals secrets with. Whoever looks into a Secret by
// reflection does not come to it.
var sealKey = func() []byte {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	return key
}()

// crypt seals text, or opens what it has sealed. iv depends on the text alone, so that a
// text is always sealed alike.
func crypt(iv, text []byte) []byte {
	block, _ := aes.NewCipher(sealKey) // fails for keys of another length
	out := make([]byte, len(text))
	cipher.NewCTR(block, iv).XORKeyStream(out, text)
	return out
}

// IsZero reports whether s is empty.
func (s Secret) IsZero() bool { return s == Secret{} }

// Equal reports whether s and o are the same text.
func (s Secret) Equal(o Secret) bool { return s == o }

// String returns a mask, or nothing if s is empty.
func (s Secret) String() string {
	if s.IsZero() {
		return ""
	}
	return masked
}

// GoString is String.
func (s Secret) GoString() string { return s.String() }

// Format prints String for every verb.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// LogValue implements slog.LogValuer.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText is String: what is encoded cannot be decoded again.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText takes the text as it is.
func (s *Secret) UnmarshalText(text []byte) error {
	*s = NewSecret(string(text))
	return nil
}
