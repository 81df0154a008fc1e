package server

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
)

// Etcd is a cluster of one etcd, by default the one that is built from tools/etcd.
type Etcd struct {
	Binary       string   // path of etcd; empty looks for one
	Distribution bool     // prefer the distribution's etcd, which is an old one
	Args         []string // more flags, as in "--max-txn-ops=64"
}

func (Etcd) name() string { return "etcd" }

func (e Etcd) binary() (string, error) {
	if e.Binary != "" || e.Distribution {
		return findBinary(e.Binary, "etcd", "/usr/bin/etcd", "/usr/local/bin/etcd")
	}
	return builtEtcd()
}

// builtEtcd looks for .servers/etcd in the working directory and above it,
// because a test runs in the directory of its package.
func builtEtcd() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; dir = filepath.Dir(dir) {
		path := filepath.Join(dir, ".servers", "etcd")
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
		if dir == filepath.Dir(dir) {
			return "", missing(".servers/etcd")
		}
	}
}

// command lets the kernel choose the port for peers, because there are none.
func (e Etcd) command(dir string, port int) (*exec.Cmd, error) {
	binary, err := e.binary()
	if err != nil {
		return nil, err
	}
	client := "http://127.0.0.1:" + strconv.Itoa(port)
	args := []string{
		"--data-dir", dir,
		"--listen-client-urls", client,
		"--advertise-client-urls", client,
		"--listen-peer-urls", "http://127.0.0.1:0",
		"--heartbeat-interval", "50",
		"--election-timeout", "500",
	}
	cmd := exec.Command(binary, append(args, e.Args...)...)
	// An old etcd starts on other than amd64 only when told to.
	cmd.Env = []string{"ETCD_UNSUPPORTED_ARCH=" + runtime.GOARCH}
	return cmd, nil
}

func (Etcd) probe(ctx context.Context, addr string) error {
	_, err := httpGet(ctx, "http://"+addr+"/health")
	return err
}

func (Etcd) version(ctx context.Context, addr string) (string, error) {
	said, err := httpGet(ctx, "http://"+addr+"/version")
	if err != nil {
		return "", err
	}
	return parseVersion(said)
}

func (Etcd) shutdown() syscall.Signal { return syscall.SIGTERM }

// httpGet keeps no connection open, for the server may be killed next.
func httpGet(ctx context.Context, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: %s", response.Status, body)
	}
	return string(body), err
}
