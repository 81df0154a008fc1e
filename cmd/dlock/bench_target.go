package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/workload"
)

// A benchTarget is a backend that dlock bench measures.
type benchTarget struct {
	workload.Contender
	names string        // what the names of its locks begin with
	ttl   time.Duration // the shortest that is usual and that it accepts
	dir   string        // of lock files of its own; empty: none
}

// newBenchTarget finds out whether the backend at url can be used, and how.
func newBenchTarget(ctx context.Context, url string, number int) (*benchTarget, error) {
	s := &benchTarget{names: "dlock-bench/" + rand.Text()}
	u, err := backend.ParseURL(url)
	if err != nil {
		return nil, coded{exitConfig, err}
	}
	ownTTL := u.Params.Has("dlock.ttl")
	name := fmt.Sprintf("%s://%s", u.Scheme, strings.Join(u.Hosts, ","))
	if url, err = s.ownURL(u, url); err != nil {
		return nil, err
	}
	s.Contender = workload.DLock(fmt.Sprintf("%d %s", number, name), nil, func(ctx context.Context, o dlock.Options) (*dlock.Client, error) {
		if ownTTL {
			o.TTL = 0
		}
		return dlock.Open(ctx, url, &o)
	})
	if err := s.chooseTTL(ctx); err != nil {
		return nil, errors.Join(err, s.remove())
	}
	return s, nil
}

// ownURL gives files a directory that can be removed afterwards, for lock
// files stay, and clients in memory a server that they share.
func (s *benchTarget) ownURL(u *backend.URL, url string) (string, error) {
	switch {
	case u.Scheme == "memory" && len(u.Hosts) == 0:
		return "memory://" + rand.Text(), nil
	case u.Scheme == "file":
		parent := u.Path
		if own := strings.TrimPrefix(parent, "/"); filepath.VolumeName(own) != "" {
			parent = own // C:/dir
		}
		if parent == "" {
			parent = os.TempDir()
		} else if err := os.MkdirAll(parent, 0o700); err != nil {
			return "", err
		}
		dir, err := os.MkdirTemp(parent, "dlock-bench-")
		if err != nil {
			return "", err
		}
		_, parameters, found := strings.Cut(url, "?")
		if s.dir, err = filepath.Abs(dir); found {
			parameters = "?" + parameters
		}
		return fileURL(s.dir) + parameters, err
	}
	return url, nil
}

// chooseTTL looks for a TTL that the backend takes, and locks once.
func (s *benchTarget) chooseTTL(ctx context.Context) (err error) {
	for _, s.ttl = range []time.Duration{3 * time.Second, 6 * time.Second, 15 * time.Second, dlock.DefaultTTL} {
		if err = s.try(ctx); !errors.Is(err, dlock.ErrInvalidTTL) {
			break
		}
	}
	return err
}

func (s *benchTarget) try(ctx context.Context) error {
	client, err := s.Open(ctx, workload.Options{TTL: s.ttl})
	if err != nil {
		return err
	}
	l := client.Lock(s.names + "/try")
	if err = l.Lock(ctx); err == nil {
		err = l.Unlock(ctx)
	}
	return errors.Join(err, client.Close())
}

func (s *benchTarget) remove() error {
	if s.dir == "" {
		return nil
	}
	return os.RemoveAll(s.dir)
}
