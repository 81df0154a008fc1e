// Package canary looks for a secret in whatever can be printed.
package canary

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"reflect"
	"strings"
	"sync"
	"testing"
)

// Secret is a password that is never to be seen.
const Secret = "c4n4ry-p4ssw0rd"

// Check fails the test if v shows the secret: by any verb, as JSON, in a log, alone and as
// a field of something else, or, if it is an error, by any of those that it wraps.
func Check(t testing.TB, what string, v any) {
	t.Helper()
	CheckOpen(t, what, v)
	inside := struct{ private any }{v}
	for _, verb := range verbs {
		if text := decoded(verb, fmt.Sprintf(verb, inside)); strings.Contains(text, Secret) {
			t.Errorf("%s, %s of a field that is not exported: %s", what, verb, text)
		}
	}
	err, ok := v.(error)
	if !ok {
		return
	}
	var text strings.Builder
	reach(reflect.ValueOf(err), &text, make(map[uintptr]bool))
	if strings.Contains(text.String(), Secret) {
		t.Errorf("%s: it is in a field of %T", what, err)
	}
	switch err := err.(type) {
	case interface{ Unwrap() error }:
		if inner := err.Unwrap(); inner != nil {
			Check(t, what+fmt.Sprintf(": %T", inner), inner)
		}
	case interface{ Unwrap() []error }:
		for _, inner := range err.Unwrap() {
			Check(t, what+fmt.Sprintf(": %T", inner), inner)
		}
	}
}

// CheckOpen is Check but for fields that are not exported, of which fmt prints what is
// inside whatever methods that has.
func CheckOpen(t testing.TB, what string, v any) {
	t.Helper()
	for _, way := range ways(v) {
		if text := way.print(); strings.Contains(text, Secret) {
			t.Errorf("%s, %s: %s", what, way.name, text)
		}
	}
}

var verbs = []string{"%v", "%+v", "%#v", "%s", "%q", "%x"}

type way struct {
	name  string
	print func() string
}

func ways(v any) []way {
	var all []way
	inside := struct{ Public any }{v}
	for _, it := range []any{v, inside, []any{v}, map[string]any{"v": v}} {
		for _, verb := range verbs {
			all = append(all, way{fmt.Sprintf("%s of %T", verb, it), func() string { return decoded(verb, fmt.Sprintf(verb, it)) }})
		}
		all = append(all, way{fmt.Sprintf("JSON of %T", it), func() string {
			text, _ := json.Marshal(it)
			return string(text)
		}})
	}
	for name, handler := range map[string]func(io.Writer) slog.Handler{
		"slog as text": func(w io.Writer) slog.Handler { return slog.NewTextHandler(w, nil) },
		"slog as JSON": func(w io.Writer) slog.Handler { return slog.NewJSONHandler(w, nil) },
	} {
		all = append(all, way{name, func() string {
			var text bytes.Buffer
			slog.New(handler(&text)).Info("m", "v", v, "inside", inside)
			return text.String()
		}})
	}
	return all
}

// decoded adds what hexadecimal digits stand for.
func decoded(verb, text string) string {
	if verb == "%x" && strings.Contains(text, fmt.Sprintf("%x", Secret)) {
		return Secret
	}
	return text
}

// reach collects the texts in all fields that a reporter can read by reflection.
func reach(v reflect.Value, out *strings.Builder, seen map[uintptr]bool) {
	switch v.Kind() {
	case reflect.String:
		fmt.Fprintln(out, v.String())
	case reflect.Pointer:
		if v.IsNil() || seen[v.Pointer()] {
			return
		}
		seen[v.Pointer()] = true
		reach(v.Elem(), out, seen)
	case reflect.Interface:
		reach(v.Elem(), out, seen)
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				reach(v.Field(i), out, seen)
			}
		}
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			fmt.Fprintf(out, "%s\n", v)
			return
		}
		for i := range v.Len() {
			reach(v.Index(i), out, seen)
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			reach(v.MapIndex(key), out, seen)
		}
	}
}

// Log is a logger, and what it has been told.
func Log() (*slog.Logger, func() string) {
	var mu sync.Mutex
	var text bytes.Buffer
	log := slog.New(slog.NewTextHandler(writer(func(b []byte) {
		mu.Lock()
		defer mu.Unlock()
		text.Write(b)
	}), &slog.HandlerOptions{Level: slog.LevelDebug}))
	return log, func() string {
		mu.Lock()
		defer mu.Unlock()
		return text.String()
	}
}

type writer func([]byte)

func (w writer) Write(b []byte) (int, error) {
	w(b)
	return len(b), nil
}

// Servers returns the addresses of what cannot be used: nothing listens there, or it hangs
// up, or says back what it hears, or always the same.
func Servers(t testing.TB, says ...string) map[string]string {
	t.Helper()
	all := map[string]string{"nobody": listen(t, nil)}
	all["hangs up"] = listen(t, func(c net.Conn) {})
	all["echo"] = listen(t, func(c net.Conn) { _, _ = io.Copy(c, c) })
	for _, text := range says {
		all[fmt.Sprintf("says %q", text)] = listen(t, func(c net.Conn) {
			buf := make([]byte, 64<<10)
			for {
				if _, err := c.Read(buf); err != nil {
					return
				}
				_, _ = io.WriteString(c, text)
			}
		})
	}
	return all
}

func listen(t testing.TB, serve func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if serve == nil {
		_ = l.Close()
		return l.Addr().String()
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				go func() {
					defer c.Close()
					serve(c)
				}()
			}
		}
	}()
	return l.Addr().String()
}
