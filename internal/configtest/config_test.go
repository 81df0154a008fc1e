// Package configtest decodes a Config with the libraries that programs decode theirs
// with, and prints it with those that print. It is a module of its own: the library
// needs none of them.
package configtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	caarlos "github.com/caarlos0/env/v11"
	"github.com/davecgh/go-spew/spew"
	"github.com/dlock-go/dlock"
	_ "github.com/dlock-go/dlock/backend/memory"
	"github.com/go-viper/mapstructure/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/kelseyhightower/envconfig"
	"github.com/spf13/viper"
	"gopkg.in/yaml.v3"
)

const (
	canary = "c4n4ry"
	url    = "memory://user:" + canary + "@name?password=" + canary
)

var want = dlock.Config{URL: dlock.NewSecret(url), TTL: dlock.Duration(90 * time.Second), Prefix: "app/", Label: "web-1"}

// settings are those of a program, in which the Config is one field.
type settings struct {
	Lock dlock.Config `json:"lock" yaml:"lock" mapstructure:"lock" envPrefix:"LOCK_"`
}

func TestDecode(t *testing.T) {
	for name, value := range map[string]string{"URL": url, "TTL": "1m30s", "PREFIX": "app/", "LABEL": "web-1"} {
		t.Setenv("LOCK_"+name, value)
	}
	text := `{"lock": {"url": "` + url + `", "ttl": "1m30s", "prefix": "app/", "label": "web-1"}}`
	fromViper := func(file string, into *settings) error {
		v := viper.New()
		v.SetConfigType(file)
		if err := v.ReadConfig(strings.NewReader(text)); err != nil {
			return err
		}
		return v.Unmarshal(into, viper.DecodeHook(mapstructure.TextUnmarshallerHookFunc()))
	}
	for name, decode := range map[string]func(*settings) error{
		"encoding/json":              func(s *settings) error { return json.Unmarshal([]byte(text), s) },
		"gopkg.in/yaml.v3":           func(s *settings) error { return yaml.Unmarshal([]byte(text), s) },
		"caarlos0/env":               func(s *settings) error { return caarlos.Parse(s) },
		"kelseyhightower/envconfig":  func(s *settings) error { return envconfig.Process("lock", &s.Lock) },
		"spf13/viper of a JSON file": func(s *settings) error { return fromViper("json", s) },
		"spf13/viper of a YAML file": func(s *settings) error { return fromViper("yaml", s) },
	} {
		t.Run(name, func(t *testing.T) {
			var s settings
			if err := decode(&s); err != nil {
				t.Fatal(err)
			}
			if s.Lock != want || s.Lock.URL.Reveal() != url {
				t.Errorf("got %v, want %v", s.Lock, want)
			}
		})
	}
}

// What cannot be decoded is refused without its text.
func TestDecodeNonsense(t *testing.T) {
	t.Setenv("LOCK_TTL", canary)
	text := `{"lock": {"ttl": "` + canary + `"}}`
	var s settings
	for name, err := range map[string]error{
		"json": json.Unmarshal([]byte(text), &s),
		"yaml": yaml.Unmarshal([]byte(text), &s),
		"env":  caarlos.Parse(&s),
	} {
		if err == nil {
			t.Errorf("%s takes a bad duration", name)
		}
		if name == "json" && !errors.Is(err, dlock.ErrInvalidConfig) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

type hidden struct {
	lock  dlock.Config
	url   dlock.Secret
	inner *hidden
	list  []dlock.Config
	byKey map[string]dlock.Secret
}

type shown struct {
	Lock  dlock.Config
	URL   dlock.Secret
	Of    *dlock.Config
	List  []dlock.Config
	ByKey map[string]dlock.Secret
}

// Nothing that prints or encodes a Config shows its password, wherever the Config is.
func TestNothingShowsThePassword(t *testing.T) {
	in := hidden{lock: want, url: want.URL, list: []dlock.Config{want}, byKey: map[string]dlock.Secret{"u": want.URL}}
	in.inner = &hidden{lock: want, url: want.URL}
	out := shown{want, want.URL, &want, in.list, in.byKey}
	_, parse := dlock.Open(t.Context(), url, nil)
	for _, v := range []any{want, &want, want.URL, &want.URL, in, &in, out, &out, []any{in, out}, want.Validate(), parse} {
		for how, text := range prints(t, v) {
			if strings.Contains(text, canary) {
				t.Errorf("%s of a %T: %s", how, v, text)
			}
		}
	}
}

func prints(t *testing.T, v any) map[string]string {
	texts := make(map[string]string)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t", "%p", "%10s", "%w"} {
		texts[verb] = fmt.Sprintf(verb, v)
	}
	var out bytes.Buffer
	slog.New(slog.NewTextHandler(&out, nil)).Info("start", "v", v)
	slog.New(slog.NewJSONHandler(&out, nil)).Info("start", "v", v, slog.Group("g", "v", v))
	texts["slog"] = out.String()
	encode := func(how string, f func(any) ([]byte, error)) {
		text, err := f(v)
		if err != nil && !strings.Contains(fmt.Sprintf("%T", v), "rror") {
			t.Errorf("%s of a %T: %v", how, v, err)
		}
		texts[how] = fmt.Sprint(string(text), err)
	}
	encode("json", json.Marshal)
	encode("yaml", yaml.Marshal)
	texts["spew"] = spew.Sdump(v) + spew.Sprintf("%+v %#v", v, v)
	all := cmp.Options{cmp.AllowUnexported(hidden{}), cmp.AllowUnexported(shown{})}
	texts["cmp"] = cmp.Diff(v, nil, all) + cmp.Diff([]any{v}, []any{1}, all)
	return texts
}

// A comparison that fails tells that secrets differ, and not what they are.
func TestCompare(t *testing.T) {
	other := want
	other.URL = dlock.NewSecret(url + "x")
	diff := cmp.Diff(hidden{lock: want}, hidden{lock: other}, cmp.AllowUnexported(hidden{}))
	if diff == "" || strings.Contains(diff, canary) {
		t.Errorf("the difference is %q", diff)
	}
}
