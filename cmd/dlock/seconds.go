package main

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"time"
)

// seconds is the value of a flag that takes a duration such as 1m30s, or a bare
// number of seconds as flock and timeout do.
type seconds time.Duration

func (s *seconds) String() string {
	if *s == 0 {
		return "" // pflag prints no default for it
	}
	return time.Duration(*s).String()
}

func (*seconds) Type() string { return "duration" }

func (s *seconds) Set(text string) error {
	if strings.HasPrefix(text, "-") {
		return errors.New("it is negative")
	}
	if n, err := strconv.ParseFloat(text, 64); err == nil {
		if math.IsNaN(n) || n >= math.MaxInt64/float64(time.Second) {
			return errors.New("out of range")
		}
		*s = seconds(n * float64(time.Second))
		return nil
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return errors.New("want seconds such as 5, or a duration such as 1m30s")
	}
	*s = seconds(d)
	return nil
}
