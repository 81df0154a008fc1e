package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	_ "github.com/dlock-go/dlock/backend/all"
	"github.com/redis/go-redis/v9/logging"
	"github.com/spf13/cobra"
)

const (
	urlVariable = "DLOCK_URL"
	defaultURL  = "file://"
)

// The Redis client tells stderr of every connection that breaks and of each
// Sentinel it asks. What matters of that comes back as an error.
func init() { logging.Disable() }

// closeTimeout is how long dlock waits for a server to take a lock back, and then to
// end the connection.
const closeTimeout = 900 * time.Millisecond

func backendFlag(c *cobra.Command, url *string, otherwise string) {
	c.Flags().StringVar(url, "backend", "", "`URL` of the backend (default $"+urlVariable+" or else "+otherwise+")")
	c.PreRunE = func(c *cobra.Command, _ []string) error {
		if c.Flags().Changed("backend") && *url == "" { // such as a variable that is not set
			return usageError(errors.New("--backend is empty"))
		}
		return nil
	}
}

func backendURL(flag, otherwise string) string {
	return cmp.Or(flag, os.Getenv(urlVariable), otherwise)
}

// chosenURL is the URL that flag or the variable gives, or that of this user's files. An empty
// variable is a mistake, or that of a command under dlock run: files here keep no other machine
// from doing the same.
func chosenURL(flag string) (string, error) {
	if variable, isSet := os.LookupEnv(urlVariable); flag == "" && isSet && variable == "" {
		return "", coded{exitConfig, errors.New(urlVariable + " is set and empty, as dlock run has it for its command: give a URL, or unset it for files of this user")}
	}
	return backendURL(flag, defaultURL), nil
}

// openClient opens the backend at url for locks between processes. The label of o is for a URL
// that has none.
func openClient(ctx context.Context, url string, o dlock.Options) (*dlock.Client, error) {
	u, err := backend.ParseURL(url)
	switch {
	case err != nil: // dlock.Open says what is wrong
	case u.Scheme == "memory":
		return nil, usageError(errors.New("a lock in memory ends at its process: give a file or server URL"))
	case !slices.Contains(backend.Schemes(), u.Scheme):
		return nil, coded{exitConfig, fmt.Errorf("no backend for scheme %q: have %s", u.Scheme, strings.Join(backend.Schemes(), ", "))}
	}
	if err == nil && u.Params.Has("dlock.label") {
		o.Label = ""
	}
	client, err := dlock.Open(ctx, url, &o)
	if err != nil && exitCode(err) == exitUsage {
		return nil, coded{exitConfig, err} // it is in the URL that a TTL or prefix is wrong
	}
	return client, nameServers(err, url)
}

// nameServers adds to an error of the network where the server was looked for, if nothing
// in it says so.
func nameServers(err error, url string) error {
	e, ok := err.(*dlock.Error)
	u, bad := backend.ParseURL(url)
	if !ok || e.Kind != dlock.ErrUnavailable || e.Err == nil || bad != nil {
		return err
	}
	if len(u.Hosts) == 0 || strings.Contains(err.Error(), u.Hosts[0]) {
		return err
	}
	named := *e
	named.Err = fmt.Errorf("%s: %w", silent(u, e.Err), e.Err)
	return &named
}

// silent is who has not answered at u: its servers, or one of those that they name.
func silent(u *backend.URL, err error) string {
	hosts := strings.Join(u.Hosts, ",")
	switch {
	case strings.HasSuffix(u.Scheme, "+sentinel") && !strings.Contains(err.Error(), "sentinels"):
		return "the master of the Sentinels " + hosts
	case strings.HasSuffix(u.Scheme, "+cluster"):
		return "a node of the cluster of " + hosts
	}
	return hosts
}

func closeClient(c *dlock.Client) { closeWithin(context.Background(), c, closeTimeout) }

func closeWithin(ctx context.Context, c *dlock.Client, limit time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	_ = c.Close(ctx) // a hold that the server was not told of ends by itself
}
