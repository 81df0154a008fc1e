package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// A query is a command that asks a backend about locks.
type query struct {
	std     stdio
	backend string
	json    bool
	base64  bool          // its argument is in base64
	limit   time.Duration // for all of it; 0: none
}

// newQuery returns the command use, which does f. The shell completes its
// argument, if it takes one, to names.
func newQuery(std stdio, use, short, long string, args cobra.PositionalArgs, f func(ctx context.Context, q *query, c *dlock.Client, args []string) error) *cobra.Command {
	q := &query{std: std}
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		Long:  long + "\n\n" + exitHelp(false),
		Args: func(c *cobra.Command, given []string) error {
			if err := args(c, given); err != nil {
				hint := ""
				if slices.ContainsFunc(given, func(arg string) bool { return strings.Contains(arg, "://") }) {
					hint = ": a URL goes into DLOCK_URL, or after --backend"
				}
				return usageError(fmt.Errorf("want dlock %s%s", use, hint))
			}
			return nil
		},
		RunE: func(_ *cobra.Command, given []string) error {
			if err := q.decode(given); err != nil {
				return err
			}
			return q.run(func(ctx context.Context, c *dlock.Client) error { return f(ctx, q, c, given) })
		},
	}
	if strings.Contains(use, " ") {
		cmd.ValidArgsFunction = q.completeName
		cmd.Flags().BoolVar(&q.base64, "base64", false, "the argument is in base64, as name_base64 of --json")
	}
	backendFlag(cmd, &q.backend, "files of this user")
	cmd.Flags().BoolVar(&q.json, "json", false, "print JSON for programs, one object a line")
	return cmd
}

// decode decodes the argument, if it is in base64.
func (q *query) decode(given []string) error {
	if !q.base64 {
		return nil
	}
	for i, text := range given {
		name, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return usageError(fmt.Errorf("%q is not base64", text))
		}
		given[i] = string(name)
	}
	return nil
}

// run calls f with a client and a context that an ending signal ends.
func (q *query) run(f func(context.Context, *dlock.Client) error) error {
	hideSelf()
	ctx, stop := untilEnding(catch(ending...))
	defer stop()
	if q.limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, q.limit)
		defer cancel()
	}
	url, err := chosenURL(q.backend)
	if err != nil {
		return err
	}
	if err := checkDirectory(url); err != nil {
		return err
	}
	client, err := openClient(ctx, url, dlock.Options{InspectOnly: true})
	if err == nil {
		defer closeClient(client)
		err = f(ctx, client)
	}
	if signalled := ended(ctx); signalled != nil {
		return signalled
	}
	return err
}

// checkDirectory fails if the directory of a file URL is missing. Who asks does not make it:
// a directory of one user, such as root, would keep out the program that it is for.
func checkDirectory(url string) error {
	u, err := backend.ParseURL(url)
	if err != nil || u.Scheme != "file" || len(u.Hosts) > 0 || u.Path == "" {
		return nil // it is the user's own, or dlock.Open says what is wrong
	}
	if _, err := os.Lstat(directoryOf(u.Path)); errors.Is(err, fs.ErrNotExist) {
		return coded{exitConfig, fmt.Errorf("there is no directory %s, and so nobody has had a lock in it", u.Path)}
	}
	return nil
}

// directoryOf is the directory that the path of a URL names, which is /C:/dir on Windows.
func directoryOf(path string) string {
	if local := filepath.FromSlash(strings.TrimPrefix(path, "/")); filepath.VolumeName(local) != "" {
		return local
	}
	return path
}

// maxCompletions bounds how many names a shell is offered.
const maxCompletions = 100

// completeName offers the names that are in use, within a second.
func (q *query) completeName(_ *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	var names []string
	if len(args) == 0 && !q.base64 {
		q.limit = time.Second
		_ = q.run(func(ctx context.Context, c *dlock.Client) (err error) {
			names, _, err = someNames(ctx, c, typed, maxCompletions)
			return err
		})
	}
	names = slices.DeleteFunc(names, func(name string) bool { return asTyped(name) != name }) // they would be quoted again, or acted on
	return names, cobra.ShellCompDirectiveNoFileComp
}

// someNames returns up to limit names that begin with prefix, sorted, and whether there
// are more.
func someNames(ctx context.Context, c *dlock.Client, prefix string, limit int) (names []string, more bool, err error) {
	seen := make(map[string]bool)
	for name, err := range c.Names(ctx, prefix) {
		if err != nil {
			return nil, false, err
		}
		if seen[name] {
			continue
		}
		if len(names) == limit {
			more = true
			break
		}
		seen[name] = true
		names = append(names, name)
	}
	slices.Sort(names)
	return names, more, nil
}

func newLs(std stdio) *cobra.Command {
	return newQuery(std, "ls [PREFIX]", "List the names that are held or waited for",
		"Print the name of each lock that begins with PREFIX and is held or waited for. A name\nthat a terminal would not show as it is, or on which a shell would act, stands as $'...', as\na shell takes it. If it has a NUL, which no argument can have, it stands as --base64 and a text.",
		cobra.MaximumNArgs(1), func(ctx context.Context, q *query, c *dlock.Client, args []string) error {
			any := false
			for name, err := range c.Names(ctx, strings.Join(args, "")) {
				if err != nil {
					return err
				}
				if err := q.printName(name); err != nil {
					return err
				}
				any = true
			}
			if any {
				return nil
			}
			if !q.json && term.IsTerminal(int(q.std.out.Fd())) { // to a program no line says it
				fmt.Fprintf(q.std.err, "no such lock is held or waited for at %s\n", printable(c.Info().Address))
			}
			q.doubt(ctx, c)
			return nil
		})
}

// doubt says why a server that shows nothing may not know better, such as a replica.
func (q *query) doubt(ctx context.Context, c *dlock.Client) {
	if err := c.Ping(ctx); err != nil && !errors.Is(err, dlock.ErrUnsupported) {
		complain(q.std.err, fmt.Errorf("this may be wrong: %s", message(err)))
	}
}

func (q *query) printName(name string) error {
	if q.json {
		return printJSON(q.std.out, newJSONName(name))
	}
	_, err := fmt.Fprintln(q.std.out, asTyped(name))
	return err
}

func newShow(std stdio) *cobra.Command {
	return newQuery(std, "show NAME", "Show who holds a lock and who waits for it",
		"Print the holders of the lock NAME, and those who wait in the order in which they\nwill be served. What the backend does not know is a dash.",
		cobra.ExactArgs(1), func(ctx context.Context, q *query, c *dlock.Client, args []string) error {
			s, err := c.Inspect(ctx, args[0])
			if err != nil {
				return err
			}
			free := len(s.Holders)+len(s.Waiters) == 0
			if free {
				defer q.doubt(ctx, c)
			}
			if q.json {
				return printJSON(q.std.out, newSnapshot(args[0], s))
			}
			if free {
				_, err := fmt.Fprintf(q.std.out, "%s is free at %s\n", asTyped(args[0]), printable(c.Info().Address))
				return err
			}
			return printSnapshot(q.std.out, s)
		})
}

func newPing(std stdio) *cobra.Command {
	return newQuery(std, "ping", "Ask the backend for a sign of life",
		"Ask the backend for a sign of life, and print its version if it tells.",
		noArguments, func(ctx context.Context, q *query, c *dlock.Client, _ []string) error {
			start := time.Now()
			if err := c.Ping(ctx); err != nil {
				return err
			}
			took, info := time.Since(start), c.Info()
			if q.json {
				return printJSON(q.std.out, struct {
					Backend string  `json:"backend"`
					Address string  `json:"address"`
					Version string  `json:"version,omitempty"`
					Seconds float64 `json:"seconds"`
				}{info.Backend, info.Address, info.Version, took.Seconds()})
			}
			version := ""
			if info.Version != "" {
				version = ", version " + printable(info.Version)
			}
			_, err := fmt.Fprintf(q.std.out, "%s answers in %v%s\n", printable(info.Address), took.Round(time.Microsecond), version)
			return err
		})
}

// A snapshot is a dlock.Snapshot as JSON.
type snapshot struct {
	jsonName
	Holders []party `json:"holders"`
	Waiters []party `json:"waiters"`
}

// A jsonName is the name of a lock as JSON.
type jsonName struct {
	Name  string `json:"name"`
	Exact []byte `json:"name_base64,omitempty"` // if JSON or an argument cannot be the name
}

func newJSONName(name string) jsonName { return jsonName{name, exact(name)} }

// exact returns the bytes of a text that JSON or an argument of a command would change,
// and nil of any other.
func exact(text string) []byte {
	if utf8.ValidString(text) && !strings.Contains(text, "\x00") {
		return nil
	}
	return []byte(text)
}

type party struct {
	Label   string     `json:"label,omitempty"`
	Exact   []byte     `json:"label_base64,omitempty"` // as that of a name
	Client  string     `json:"client,omitempty"`
	Mode    string     `json:"mode,omitempty"`
	Entries int        `json:"entries,omitempty"`
	Since   *time.Time `json:"since,omitempty"`
	Left    float64    `json:"left_seconds,omitempty"`
	Token   uint64     `json:"token,omitempty"`
}

func newSnapshot(name string, s dlock.Snapshot) snapshot {
	return snapshot{newJSONName(name), newParties(s.Holders), newParties(s.Waiters)}
}

func newParties(parties []dlock.Party) []party {
	out := make([]party, 0, len(parties))
	for _, p := range parties {
		one := party{Label: p.Label, Exact: exact(p.Label), Client: shortClient(p), Mode: modeOf(p), Entries: p.Entries, Left: p.Left.Seconds(), Token: p.Token}
		if !p.Since.IsZero() {
			one.Since = &p.Since
		}
		out = append(out, one)
	}
	return out
}

// shortClient is enough of a client's ID to tell clients apart, and too little to act
// as one: eight characters, and three behind a process and a slash at least.
func shortClient(p dlock.Party) string {
	process := strings.IndexByte(p.Client, '/') + 1
	return p.Client[:min(len(p.Client), max(8, process+3))]
}

func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

func printSnapshot(w io.Writer, s dlock.Snapshot) error {
	var t table
	t.add("", "MODE", "LABEL", "CLIENT", "FOR", "LEFT", "TOKEN", "ENTRIES")
	for _, h := range s.Holders {
		t.addParty("holds", h)
	}
	for i, h := range s.Waiters {
		t.addParty(fmt.Sprintf("waits %d", i+1), h)
	}
	return t.write(w)
}

func (t *table) addParty(what string, p dlock.Party) {
	token, entries := "", ""
	if p.Token > 0 {
		token = fmt.Sprint(p.Token)
	}
	if p.Entries > 0 {
		entries = fmt.Sprint(p.Entries)
	}
	t.add(what, orDash(modeOf(p)), orDash(printable(p.Label)), orDash(printable(shortClient(p))),
		orDash(age(p)), orDash(short(p.Left)), orDash(token), orDash(entries))
}

// modeOf is the mode of p, empty if the server does not know it.
func modeOf(p dlock.Party) string {
	if p.Mode == 0 {
		return ""
	}
	return p.Mode.String()
}

// age is for how long p has held the lock or waited for it, by this machine's clock.
func age(p dlock.Party) string {
	if p.Since.IsZero() {
		return ""
	}
	return max(time.Since(p.Since), 0).Round(time.Second).String()
}

func short(d time.Duration) string {
	if d <= 0 {
		return ""
	}
	return d.Round(100 * time.Millisecond).String()
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// errNobody says that the lock is free already.
func errNobody(name string) error {
	return &dlock.Error{Op: "break", Name: name, Kind: dlock.ErrNotHeld}
}

var errNotConfirmed = errors.New("left as it is")
