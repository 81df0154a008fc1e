package backend

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestParseURL(t *testing.T) {
	u, err := ParseURL("Redis+Sentinel://us%40er:p%2Fw@h1:1,[::1]:2,[::2],h4/a%20b?x=1&y=a%40b")
	if err != nil {
		t.Fatal(err)
	}
	if u.Scheme != "redis+sentinel" || u.User != "us@er" || u.Password.Reveal() != "p/w" || u.Path != "/a b" {
		t.Errorf("got %q %q %q", u.Scheme, u.User, u.Path)
	}
	if want := []string{"h1:1", "[::1]:2", "[::2]:9", "h4:9"}; !slices.Equal(u.HostPorts("9"), want) {
		t.Errorf("hosts %q, want %q", u.HostPorts("9"), want)
	}
	if x, y := u.Params.Take("x", ""), u.Params.Take("y", ""); x != "1" || y != "a@b" || u.Params.Done() != nil {
		t.Errorf("parameters %q %q", x, y)
	}
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d"} {
		if text := fmt.Sprintf(format, u); strings.Contains(text, "p/w") || strings.Contains(text, "p%2Fw") {
			t.Errorf("%s shows the password", format)
		}
	}
}

// The hint is about what stands there: a path, or a password.
func TestParseURLSaysWhatToEncode(t *testing.T) {
	for raw, want := range map[string]string{
		"file:///var/lock/a#b":   "%23",
		"file:///var/lock/@app":  "%40",
		"etcd://h/a#b":           "%23",
		"redis://u:p/w@h":        "password",
		"redis://u:p#w@h":        "password",
		"redis://:p?w@h/0?db=#1": "password",
	} {
		if _, err := ParseURL(raw); !errors.Is(err, ErrInvalidConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", raw, err, want)
		}
	}
}

// A line end that a file or a variable brings along names no other lock.
func TestParseURLRefusesWhiteSpace(t *testing.T) {
	for _, raw := range []string{
		"file:///var/lock/app\n", "etcd://h/prefix\r\n", "redis://h?dlock.prefix=a/\n", "redis://h\n",
		" redis://h", "redis://h ", "file:///var/\tapp", "etcd://h/a\x00b",
	} {
		if _, err := ParseURL(raw); !errors.Is(err, ErrInvalidConfig) || !strings.Contains(err.Error(), "white space") {
			t.Errorf("%q: %v", raw, err)
		}
	}
	u, err := ParseURL("file:///a b%0A")
	if err != nil || u.Path != "/a b\n" {
		t.Errorf("%v, path %q", err, u.Path)
	}
}

func TestEach(t *testing.T) {
	u, err := ParseURL("many://user:pw@h1:1,[::1]:2,h3/0?a=1&b=2&bad=soon")
	if err != nil {
		t.Fatal(err)
	}
	u.Params.Take("a", "")
	u.Params.TakeDuration("bad", 0)
	var hosts []string
	for _, one := range u.Each("one") {
		hosts = append(hosts, one.Hosts...)
		if one.Scheme != "one" || one.User != "user" || one.Password.Reveal() != "pw" || one.Path != "/0" {
			t.Errorf("got %v", one)
		}
		if b := one.Params.Take("b", ""); b != "2" || one.Params.Done() != nil {
			t.Errorf("b is %q: %v", b, one.Params.Done())
		}
	}
	if !slices.Equal(hosts, u.Hosts) {
		t.Errorf("hosts %q", hosts)
	}
	if err := u.Params.Done(); !errors.Is(err, ErrInvalidConfig) || strings.Contains(err.Error(), `"b"`) {
		t.Errorf("what is left: %v", err)
	}
}

func TestParseURLWithoutHost(t *testing.T) {
	u, err := ParseURL("unix://user:pw@/run/redis.sock?db=1")
	if err != nil {
		t.Fatal(err)
	}
	if len(u.Hosts) != 0 || u.Path != "/run/redis.sock" || u.Password.Reveal() != "pw" {
		t.Errorf("got %v, hosts %q", u, u.Hosts)
	}
}

func TestParams(t *testing.T) {
	u, err := ParseURL("x://h?d=5s&n=7&b=true&bad=soon&twice=1&twice=2&left=1")
	if err != nil {
		t.Fatal(err)
	}
	p := &u.Params
	if d, n, b := p.TakeDuration("d", 0), p.TakeInt("n", 0), p.TakeBool("b", false); d != 5*time.Second || n != 7 || !b {
		t.Errorf("got %v %v %v", d, n, b)
	}
	if d := p.TakeDuration("bad", time.Hour); d != time.Hour {
		t.Errorf("a bad value became %v", d)
	}
	if d := p.TakeInt("absent", 3); d != 3 {
		t.Errorf("an absent value became %v", d)
	}
	p.Take("twice", "")
	err = p.Done()
	if !errors.Is(err, ErrInvalidConfig) {
		t.Fatal(err)
	}
	for _, want := range []string{"bad", "twice", `"left"`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not name %s", err, want)
		}
	}
	if strings.Contains(err.Error(), "soon") {
		t.Errorf("%q shows a value", err)
	}
}

func TestRegistry(t *testing.T) {
	open := func(_ context.Context, cfg Config) (Backend, error) { return nil, errors.New("opened " + cfg.Label) }
	Register("registry-test", open)
	defer func() { delete(registry.openers, "registry-test") }()
	u, err := ParseURL("registry-test://h")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), Config{URL: u, Label: "me"}); err == nil || err.Error() != "opened me" {
		t.Errorf("got %v", err)
	}
	u.Scheme = "nosuch"
	if _, err := Open(t.Context(), Config{URL: u}); !errors.Is(err, ErrInvalidConfig) || !strings.Contains(err.Error(), "registry-test") {
		t.Errorf("got %v", err)
	}
	for _, bad := range []func(){
		func() { Register("registry-test", open) },
		func() { Register("Upper", open) },
		func() { Register("nil", nil) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("a bad registration did not panic")
				}
			}()
			bad()
		}()
	}
}
