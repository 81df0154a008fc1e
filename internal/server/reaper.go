package server

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
)

const shell = "/bin/sh"

// reaperScript makes the directory of this test binary's servers, reads which
// processes run, and at the end of its input, which comes when the test binary
// is gone for whatever reason, kills them and removes the directory. A process
// is stopped before its children are listed, so that it cannot start another. Its
// shared memory is treated as markSharedMemory does it.
const reaperScript = `
trap '' HUP INT TERM
dir=$(mktemp -d "${TMPDIR:-/tmp}/dlock-servers.XXXXXX") || exit
chmod 711 "$dir"
echo "$dir"
exec >/dev/null

pids=' '
while read -r sign pid; do
	case $sign in
	+) pids="$pids$pid " ;;
	-) pids="${pids%% $pid *} ${pids#* $pid }" ;;
	esac
done

kill_tree() {
	kill -STOP "$1" || return 0
	for child in $(cat /proc/"$1"/task/*/children); do
		kill_tree "$child"
	done
	for segment in $(sed -n 's|.* \([0-9][0-9]*\) */SYSV.*|\1|p' /proc/"$1"/maps); do
		ipcrm -m "$segment"
	done
	kill -KILL "$1"
}
for pid in $pids; do
	kill_tree "$pid"
done

tries=30
until rm -rf "$dir" || [ $tries = 0 ]; do
	tries=$((tries - 1))
	sleep 1
done
`

// registerScript tells the reaper about its own process and then becomes the
// server. The pipe to the reaper stays open until that is said, so a server
// cannot be missed even when the test binary is killed in the middle of a start.
const registerScript = `echo "+ $$" >&3; exec 3>&-; exec "$@"`

// A reaper is the process that cleans up after this one.
type reaper struct {
	dir  string // where servers keep their files
	pipe *os.File
}

// theReaper is started by the first server and ends with the test binary.
var theReaper = sync.OnceValues(startReaper)

func startReaper() (*reaper, error) {
	input, pipe, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer input.Close()
	cmd := exec.Command(shell, "-c", reaperScript)
	cmd.Stdin = input
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	output, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	dir, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("dlock: no temporary directory for servers: %w", err)
	}
	return &reaper{dir: strings.TrimSuffix(dir, "\n"), pipe: pipe}, nil
}

// adopt makes cmd announce itself to the reaper when it starts.
func (r *reaper) adopt(cmd *exec.Cmd) {
	cmd.Args = append([]string{shell, "-c", registerScript, shell, cmd.Path}, cmd.Args[1:]...)
	cmd.Path = shell
	cmd.ExtraFiles = []*os.File{r.pipe}
}

// forget is called when a process has ended and its number may be used again. A
// reaper that is gone has nothing to forget.
func (r *reaper) forget(pid int) {
	_, _ = fmt.Fprintln(r.pipe, "-", pid)
}
