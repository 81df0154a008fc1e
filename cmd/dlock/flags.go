package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

// wants says what a flag of each type takes.
var wants = map[string]string{
	"int":    "want a whole number",
	"uint":   "want a whole number, 0 or more",
	"uint64": "want a whole number, 0 or more",
	"bool":   "want true or false",
}

// flagError says in words for people who do not know Go what is wrong with a flag of the
// command that is used like that.
func flagError(use string, err error) error {
	var unknown *pflag.NotExistError
	if takesName := strings.Contains(use, "NAME") || strings.Contains(use, "PREFIX"); takesName && errors.As(err, &unknown) {
		return fmt.Errorf("%w: put -- before a name that begins with a dash", err)
	}
	var bad *pflag.InvalidValueError
	if !errors.As(err, &bad) {
		return err
	}
	problem := bad.Unwrap().Error()
	if want, ok := wants[bad.GetFlag().Value.Type()]; ok {
		problem = want
	}
	if errors.Is(bad, strconv.ErrRange) {
		problem = "that number is too large"
	}
	return fmt.Errorf("--%s %q: %s", bad.GetFlag().Name, bad.GetValue(), problem)
}
