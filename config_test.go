package dlock_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

func TestConfigDecodesFromJSON(t *testing.T) {
	var cfg dlock.Config
	text := `{"url": "memory://", "ttl": "1m30s", "prefix": "app/", "label": "web-1"}`
	if err := json.Unmarshal([]byte(text), &cfg); err != nil {
		t.Fatal(err)
	}
	want := dlock.Config{URL: dlock.NewSecret("memory://"), TTL: dlock.Duration(90 * time.Second), Prefix: "app/", Label: "web-1"}
	if cfg != want {
		t.Errorf("got %v, want %v", cfg, want)
	}
	if err := cfg.Validate(); err != nil {
		t.Error(err)
	}
	if err := json.Unmarshal([]byte(`{"ttl": "soon"}`), &cfg); !errors.Is(err, dlock.ErrInvalidConfig) {
		t.Errorf("a bad duration is %v", err)
	}
}

// Every field can be set from JSON, YAML and environment variables.
func TestConfigHasTags(t *testing.T) {
	typ := reflect.TypeFor[dlock.Config]()
	for i := range typ.NumField() {
		f := typ.Field(i)
		for _, tag := range []string{"json", "yaml", "mapstructure", "env"} {
			if f.Tag.Get(tag) == "" {
				t.Errorf("%s has no %s tag", f.Name, tag)
			}
		}
	}
}

func TestConfigOpens(t *testing.T) {
	cfg := dlock.Config{URL: dlock.NewSecret("memory://"), TTL: dlock.Duration(time.Minute), Prefix: "app/"}
	c, err := cfg.Open(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	unlock(t, lock(t, c.Mutex("x")))
	if err := c.Close(t.Context()); err != nil {
		t.Error(err)
	}
	_, err = cfg.Open(t.Context(), &dlock.Options{TTL: time.Second})
	is(t, err, dlock.ErrInvalidConfig)
}

func TestConfigHidesSecrets(t *testing.T) {
	const secret = "hunter2"
	cfg := dlock.Config{URL: dlock.NewSecret("memory://user:" + secret + "@host/path?password=" + secret)}
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
		for _, v := range []any{cfg, &cfg} {
			if text := fmt.Sprintf(format, v); strings.Contains(text, secret) {
				t.Errorf("%s shows the password: %s", format, text)
			}
		}
	}
	u, err := backend.ParseURL(cfg.URL.Reveal())
	is(t, err, nil)
	type settings struct {
		Lock    dlock.Config
		Backend backend.URL
	}
	for _, v := range []any{cfg, &cfg, u, *u, u.Params, &u.Params, settings{cfg, *u}, &settings{cfg, *u}} {
		if text, err := json.Marshal(v); err != nil || strings.Contains(string(text), secret) {
			t.Errorf("a %T is encoded as %s: %v", v, text, err)
		}
		var out strings.Builder
		slog.New(slog.NewJSONHandler(&out, nil)).Info("start", "v", v)
		slog.New(slog.NewTextHandler(&out, nil)).Info("start", "v", v)
		if text := out.String() + fmt.Sprint(v); strings.Contains(text, secret) {
			t.Errorf("a %T shows the password: %s", v, text)
		}
	}
}

// Validate finds what Open would.
func TestConfigIsValid(t *testing.T) {
	for url, valid := range map[string]bool{
		"memory://?dlock.ttl=10s": true, "memory://?dlock.ttl=abc": false, "memory://?dlock.ttl=1s&dlock.ttl=2s": false,
	} {
		cfg := dlock.Config{URL: dlock.NewSecret(url)}
		c, err := cfg.Open(t.Context(), nil)
		if err == nil {
			is(t, c.Close(t.Context()), nil)
		}
		if said := cfg.Validate(); (said == nil) != valid || (err == nil) != valid {
			t.Errorf("%s: Validate says %v, Open %v", url, said, err)
		}
	}
	err := dlock.Config{URL: dlock.NewSecret("memory://"), TTL: dlock.Duration(time.Millisecond)}.Validate()
	if n := strings.Count(err.Error(), "1ms"); n != 1 {
		t.Errorf("the problem is told %d times: %v", n, err)
	}
}

func TestCredentialsTwice(t *testing.T) {
	o := &dlock.Options{Credentials: func(context.Context) (string, string, error) { return "", "", nil }}
	_, err := dlock.Open(t.Context(), "memory://user:pw@host", o)
	is(t, err, dlock.ErrInvalidConfig)
}

func FuzzOpen(f *testing.F) {
	const secret = "c4n4ry"
	for _, seed := range []string{
		"memory://", "memory://name", "memory://user:" + secret + "@h", "memory://u:" + secret + "@[::1]:1,h:2/p?a=b",
		"memory://u:" + secret + "/x@h", "memory://u:" + secret + "?x@h", "x://" + secret + "@", "://", "memory://?dlock.ttl=1s",
		"memory://u:%zz" + secret + "@h", "memory://h#" + secret, "memory://a,b", "memory://[::1", "memory://h:0",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, url string) {
		c, err := dlock.Open(t.Context(), url, nil)
		if err == nil {
			if err := c.Close(t.Context()); err != nil {
				t.Error(err)
			}
			return
		}
		var e *dlock.Error
		if !errors.As(err, &e) || !errors.Is(err, dlock.ErrInvalidConfig) && !errors.Is(err, dlock.ErrInvalidTTL) && !errors.Is(err, dlock.ErrInvalidName) {
			t.Errorf("error %v has no kind", err)
		}
		cut := strings.LastIndex(url, "@")
		if cut >= 0 && strings.Contains(url[:cut], secret) && strings.Contains(err.Error(), secret) {
			t.Errorf("the error shows the password: %v", err)
		}
	})
}
