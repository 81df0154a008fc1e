package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/internal/server"
	"github.com/dlock-go/dlock/internal/workload"
)

// A meter asks servers for their own counts, and the system for the rest.
type meter struct {
	servers []*server.Server
	count   func(ctx context.Context, s *server.Server) (int64, error)
}

func (m meter) Read(ctx context.Context) (r workload.Reading, err error) {
	for _, s := range m.servers {
		n, err := m.count(ctx, s)
		if err != nil {
			return r, fmt.Errorf("read the counters of a server: %w", err)
		}
		r.Requests += n
		r.CPU += cpuOf(s.Pid())
		r.Connections += connectionsTo(s.Addr())
	}
	return r, nil
}

// redisMeter counts the commands that clients send to the first nodes. Commands
// that scripts run are in the server's counts too: only scripts are taken, and
// those of more.
func (s *servers) redisMeter(nodes int, more ...string) meter {
	commands := append([]string{"eval", "evalsha"}, more...)
	return meter{s.redis[:nodes], func(ctx context.Context, s *server.Server) (int64, error) {
		return redisCalls(ctx, s.Addr(), commands)
	}}
}

func redisCalls(ctx context.Context, addr string, commands []string) (sum int64, err error) {
	c := redis.NewClient(&redis.Options{Addr: addr, DisableIdentity: true})
	defer c.Close()
	stats, err := c.Info(ctx, "commandstats").Result()
	for _, command := range commands {
		_, rest, found := strings.Cut(stats, "cmdstat_"+command+":calls=")
		if !found {
			continue
		}
		digits, _, _ := strings.Cut(rest, ",")
		n, _ := strconv.ParseInt(digits, 10, 64)
		sum += n
	}
	return sum, err
}

// etcdMeter counts gRPC messages received, those of watches and leases too.
func (s *servers) etcdMeter() meter {
	return meter{[]*server.Server{s.etcd}, func(ctx context.Context, s *server.Server) (int64, error) {
		return etcdMessages(ctx, s.Addr())
	}}
}

func etcdMessages(ctx context.Context, addr string) (sum int64, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		if name, value, ok := strings.Cut(lines.Text(), "} "); ok && strings.HasPrefix(name, "grpc_server_msg_received_total{") {
			n, _ := strconv.ParseFloat(value, 64)
			sum += int64(n)
		}
	}
	return sum, lines.Err()
}

// zookeeperMeter counts packets received, pings too, but not those by which it
// asks.
func (s *servers) zookeeperMeter() meter {
	var asked atomic.Int64
	return meter{[]*server.Server{s.zookeeper}, func(_ context.Context, s *server.Server) (int64, error) {
		n, err := zookeeperPackets(s.Addr())
		return n - asked.Add(1), err
	}}
}

func zookeeperPackets(addr string) (int64, error) {
	conn, err := net.DialTimeout("tcp", addr, 10*time.Second)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("mntr")); err != nil {
		return 0, err
	}
	reply, err := io.ReadAll(conn)
	_, rest, found := bytes.Cut(reply, []byte("zk_packets_received\t"))
	if !found {
		return 0, errors.Join(err, errors.New("zookeeper does not say how many packets it received"))
	}
	digits, _, _ := bytes.Cut(rest, []byte("\n"))
	return strconv.ParseInt(string(digits), 10, 64)
}

// postgresMeter counts statements that have ended, apart from its own.
func (s *servers) postgresMeter() meter {
	return meter{[]*server.Server{s.postgres}, func(ctx context.Context, s *server.Server) (n int64, err error) {
		conn, err := pgx.Connect(ctx, fmt.Sprintf(postgresURL, s.Addr()))
		if err != nil {
			return 0, err
		}
		defer conn.Close(ctx)
		err = conn.QueryRow(ctx, `SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_statements
			WHERE query NOT LIKE '%pg_stat_statements%'`).Scan(&n)
		return n, err
	}}
}

// tick is the unit of CPU times in /proc, on every Linux.
const tick = 10 * time.Millisecond

// cpuOf is what a process and its children have used, those that have ended too.
func cpuOf(pid int) time.Duration {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	var ticks int64
	for _, field := range fields[11:15] { // own and ended children's, in user and system mode
		n, _ := strconv.ParseInt(field, 10, 64)
		ticks += n
	}
	sum := time.Duration(ticks) * tick
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, list := range lists {
		children, _ := os.ReadFile(list)
		for child := range strings.FieldsSeq(string(children)) {
			if n, err := strconv.Atoi(child); err == nil {
				sum += cpuOf(n)
			}
		}
	}
	return sum
}

// connectionsTo counts the TCP connections of this machine to addr.
func connectionsTo(addr string) (n int) {
	_, port, _ := net.SplitHostPort(addr)
	number, _ := strconv.Atoi(port)
	remote := fmt.Sprintf(":%04X", number)
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, _ := os.ReadFile(table)
		for line := range strings.Lines(string(text)) {
			const established = "01"
			if f := strings.Fields(line); len(f) > 3 && strings.HasSuffix(f[2], remote) && f[3] == established {
				n++
			}
		}
	}
	return n
}
