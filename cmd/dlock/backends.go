package main

import (
	"cmp"
	"context"
	"errors"
	"os"
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

// farewell is how long dlock waits for a server to take a lock back, and then to
// end the connection.
const farewell = 900 * time.Millisecond

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

// openClient opens the backend at url for locks between processes.
func openClient(ctx context.Context, url string) (*dlock.Client, error) {
	if u, err := backend.ParseURL(url); err == nil && u.Scheme == "memory" {
		return nil, usageError(errors.New("a lock in memory ends at its process: give a file or server URL"))
	}
	client, err := dlock.Open(ctx, url, nil)
	if err != nil && exitCode(err) == exitUsage {
		return nil, coded{exitConfig, err} // it is in the URL that a TTL or prefix is wrong
	}
	return client, err
}

func closeClient(c *dlock.Client) { closeWithin(context.Background(), c, farewell) }

func closeWithin(ctx context.Context, c *dlock.Client, limit time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	_ = c.Close(ctx) // a hold that the server was not told of ends by itself
}
