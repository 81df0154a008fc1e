package server

import (
	"context"
	"errors"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// Redis is a redis-server without persistence.
type Redis struct {
	Binary     string   // path of redis-server; empty looks for one
	AppendOnly bool     // write every command to disk before the reply, for restarts with data
	Args       []string // more directives, as in "--requirepass", "secret"
}

func (Redis) name() string { return "redis" }

func (r Redis) binary() (string, error) {
	return findBinary(r.Binary, "redis-server", "/usr/bin/redis-server", "/usr/local/bin/redis-server")
}

func (r Redis) command(dir string, port int) (*exec.Cmd, error) {
	binary, err := r.binary()
	if err != nil {
		return nil, err
	}
	args := []string{
		"--bind", "127.0.0.1",
		"--port", strconv.Itoa(port),
		"--dir", dir,
		"--save", "",
		"--appendfsync", "always",
		"--appendonly", "no",
	}
	if r.AppendOnly {
		args = append(args, "--appendonly", "yes")
	}
	return exec.Command(binary, append(args, r.Args...)...), nil
}

// probe takes every reply for health but the one that says that data is still
// being loaded: a server that wants a password is up.
func (Redis) probe(ctx context.Context, addr string) error {
	reply, err := ask(ctx, addr, "PING\r\n")
	if err == nil && strings.HasPrefix(reply, "-LOADING") {
		return errors.New("redis is loading its data")
	}
	return err
}

func (r Redis) version(ctx context.Context, _ string) (string, error) {
	binary, err := r.binary()
	if err != nil {
		return "", err
	}
	return versionOf(ctx, binary, "--version")
}

func (Redis) shutdown() syscall.Signal { return syscall.SIGTERM }
