package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/dlock-go/dlock"
)

// phrases say what has happened to a lock in words for people who do not know
// the library. %s is the lock's name in quotes.
var phrases = []struct {
	kind error
	text string
}{
	{dlock.ErrHeld, "the lock %s is held by another"},
	{dlock.ErrLost, "the lock %s was lost"},
	{dlock.ErrUnavailable, "the backend is not available"},
	{dlock.ErrAuth, "the backend denies access"},
	{dlock.ErrConflict, "something else has the place of the lock %s on the backend"},
	{dlock.ErrNotHeld, "nobody holds the lock %s, or not with that token"},
	{dlock.ErrUnsupported, "the backend cannot do this"},
}

// complain prints err on one line.
func complain(w io.Writer, err error) { fmt.Fprintln(w, "dlock: "+printable(oneLine(message(err)))) }

// message is err in the words of the command line.
func message(err error) string {
	var c coded
	if errors.As(err, &c) {
		err = c.error
	}
	e, ok := err.(*dlock.Error)
	if !ok {
		return withoutPrefix(err.Error())
	}
	text := ""
	if e.Kind != nil {
		text = withoutPrefix(e.Kind.Error())
	}
	for _, p := range phrases {
		switch {
		case e.Kind != p.kind:
		case e.Name == "": // found when the backend was opened
			text = strings.ReplaceAll(p.text, "the lock %s", "locks")
		default:
			text = strings.ReplaceAll(p.text, "%s", fmt.Sprintf("%q", e.Name))
		}
	}
	if e.Err == nil {
		return text
	}
	return strings.TrimPrefix(text+": "+withoutPrefix(e.Err.Error()), ": ")
}

// withoutPrefix removes the library's name from the beginning of each error that
// text consists of, and that a server is not available where the text says why.
func withoutPrefix(text string) string {
	text = strings.ReplaceAll(strings.TrimPrefix(text, "dlock: "), ": dlock: ", ": ")
	return strings.ReplaceAll(text, unavailable, "")
}

// unavailable stands before the reason wherever several servers are told of.
var unavailable = strings.TrimPrefix(dlock.ErrUnavailable.Error(), "dlock: ") + ": "

// acted has what a shell acts on if it is not quoted, and actedFirst what it acts on at the
// beginning: whoever may name a lock must not run a command on the machine of who pastes that
// name, or has the shell complete it, nor have it mean another lock.
const acted, actedFirst = "$`;&|<>()'\"\\*?[{!", "~#="

// asTyped is the name of a lock as it can be given to dlock again: one that a terminal would
// not show as it is, on which a shell would act, or with a space at an end that nobody would see,
// stands as $'...', which bash, zsh and ksh take for the name. No argument can have a NUL.
func asTyped(name string) string {
	if strings.Contains(name, "\x00") {
		return "--base64 " + base64.StdEncoding.EncodeToString([]byte(name))
	}
	isShown := utf8.ValidString(name) && !strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) })
	isActed := strings.ContainsAny(name, acted) || strings.IndexAny(name, actedFirst) == 0
	if isShown && !isActed && strings.Trim(name, " ") == name {
		return name
	}
	var b strings.Builder
	for at := 0; at < len(name); {
		r, size := utf8.DecodeRuneInString(name[at:])
		switch {
		case r == '\'' || r == '\\':
			b.WriteString(`\` + string(r))
		case unicode.IsPrint(r) && r != utf8.RuneError && r != '!': // which bash takes for a command of before, in some quotes
			b.WriteRune(r)
		default:
			for _, c := range []byte(name[at : at+size]) {
				fmt.Fprintf(&b, `\x%02x`, c)
			}
		}
		at += size
	}
	return "$'" + b.String() + "'"
}

// oneLine joins the lines of an error of several causes, each of them once, and says in
// plain words that the time was over.
func oneLine(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	text = strings.ReplaceAll(strings.Join(lines, "; "), ":; ", ": ")
	return strings.ReplaceAll(text, context.DeadlineExceeded.Error(), "no answer in time")
}

// printable makes text one line that does nothing to a terminal: a server chose
// part of it.
func printable(text string) string {
	var b strings.Builder
	for _, r := range strings.ReplaceAll(text, "\n", "; ") {
		if unicode.IsPrint(r) {
			b.WriteRune(r)
			continue
		}
		quoted := fmt.Sprintf("%+q", r)
		b.WriteString(quoted[1 : len(quoted)-1])
	}
	return b.String()
}
