package backend

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Params are the parameters of a URL. A backend takes those it knows; what is
// left over, and what could not be read, is the error of Done. The zero value
// has none. Values are never printed: they may be secrets.
type Params struct {
	values   url.Values
	problems []error
}

// Has reports whether the parameter is given and not yet taken.
func (p *Params) Has(name string) bool { return p.values.Has(name) }

// Take removes a parameter and returns its value, or def if it is not given.
func (p *Params) Take(name, def string) string {
	v, ok := p.values[name]
	if !ok {
		return def
	}
	delete(p.values, name)
	if len(v) > 1 {
		p.Problem(name, "given more than once")
	}
	return v[0]
}

// TakeDuration is Take for a duration such as 1.5s.
func (p *Params) TakeDuration(name string, def time.Duration) time.Duration {
	return takeAs(p, name, def, time.ParseDuration, "want a duration such as 10s")
}

// TakeInt is Take for a whole number.
func (p *Params) TakeInt(name string, def int) int {
	return takeAs(p, name, def, strconv.Atoi, "want a whole number")
}

// TakeBool is Take for true or false.
func (p *Params) TakeBool(name string, def bool) bool {
	return takeAs(p, name, def, strconv.ParseBool, "want true or false")
}

func takeAs[T any](p *Params, name string, def T, parse func(string) (T, error), want string) T {
	if !p.Has(name) {
		return def
	}
	v, err := parse(p.Take(name, ""))
	if err != nil {
		p.Problem(name, want)
		return def
	}
	return v
}

// Clone returns a copy, from which as much can be taken.
func (p *Params) Clone() Params {
	return Params{values: maps.Clone(p.values), problems: slices.Clone(p.problems)}
}

// Rest removes and returns all parameters that are left, for a driver that
// reads the others by itself.
func (p *Params) Rest() url.Values {
	rest := p.values
	p.values = nil
	return rest
}

// Problem has Done report that the parameter's value is wrong, and what to give instead.
func (p *Params) Problem(name, want string) {
	p.problems = append(p.problems, fmt.Errorf("parameter %s: %s", name, want))
}

// Err reports as ErrInvalidConfig every parameter taken so far that could not be
// read.
func (p *Params) Err() error {
	if len(p.problems) == 0 {
		return nil
	}
	return Fail(ErrInvalidConfig, Join(p.problems...))
}

// Format prints the names alone, for every verb.
func (p Params) Format(s fmt.State, _ rune) {
	fmt.Fprint(s, slices.Sorted(maps.Keys(p.values)))
}

// Done reports as ErrInvalidConfig every parameter that could not be read and
// every one that nobody took.
func (p *Params) Done() error {
	all := p.Clone()
	if len(p.values) > 0 {
		all.problems = append(all.problems, UnknownParams(slices.Sorted(maps.Keys(p.values))))
	}
	return all.Err()
}

// RefusedParams says as ErrInvalidConfig which parameter a driver does not accept: the one
// without which it accepts the others, or what otherwise says. The error of the driver
// itself may repeat values.
func RefusedParams(params url.Values, parse func(url.Values) error, otherwise string) error {
	for _, name := range slices.Sorted(maps.Keys(params)) {
		others := maps.Clone(params)
		others.Del(name)
		if parse(others) == nil {
			otherwise = "parameter " + name + ": the driver does not accept the value"
			break
		}
	}
	return Fail(ErrInvalidConfig, errors.New(otherwise))
}

// UnknownParams says that nobody knows the parameters of these names.
func UnknownParams(names []string) error {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = strconv.Quote(name)
		if name == "ttl" || name == "prefix" || name == "label" {
			quoted[i] += " (dlock." + name + "?)"
		}
	}
	return errors.New("unknown parameter " + strings.Join(quoted, ", "))
}
