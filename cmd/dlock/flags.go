package main

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/pflag"
)

// wants says what a flag of each type takes.
var wants = map[string]string{
	"int":    "want a whole number",
	"uint":   "want a whole number, 0 or more",
	"uint64": "want a whole number, 0 or more",
	"bool":   "want true or false",
}

// flagError says in words for people who do not know Go what is wrong with a flag.
func flagError(err error) error {
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
