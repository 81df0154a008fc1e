package backend

import (
	"encoding"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"sync"
	"weak"
)

// A Secret is text that nothing prints, such as a URL with a password in it: not fmt,
// slog, JSON, YAML, nor what looks at a struct by reflection, as fmt does at a field
// that is not exported, or a comparison that follows pointers. It decodes from plain
// text, and two can be compared. The zero value is empty.
type Secret struct{ of *sealed }

// A sealed stands for one text, which only the table has: whatever follows the pointer
// finds a number.
type sealed struct {
	number uint64
	_      *byte // an object without pointers may share its fate with others
}

// secrets has the texts for as long as somebody has a Secret of them.
var secrets struct {
	sync.Mutex
	last   uint64
	texts  map[uint64]string
	sealed map[string]weak.Pointer[sealed]
}

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
	secrets.Lock()
	defer secrets.Unlock()
	if of := secrets.sealed[text].Value(); of != nil {
		return Secret{of}
	}
	if secrets.texts == nil {
		secrets.texts, secrets.sealed = make(map[uint64]string), make(map[string]weak.Pointer[sealed])
	}
	secrets.last++
	of := &sealed{number: secrets.last}
	secrets.texts[of.number], secrets.sealed[text] = text, weak.Make(of)
	runtime.AddCleanup(of, forgetSecret, of.number)
	return Secret{of}
}

func forgetSecret(number uint64) {
	secrets.Lock()
	defer secrets.Unlock()
	text := secrets.texts[number]
	delete(secrets.texts, number)
	if secrets.sealed[text].Value() == nil {
		delete(secrets.sealed, text)
	}
}

// Reveal returns the text.
func (s Secret) Reveal() string {
	if s.IsZero() {
		return ""
	}
	secrets.Lock()
	defer secrets.Unlock()
	text := secrets.texts[s.of.number]
	runtime.KeepAlive(s.of)
	return text
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
