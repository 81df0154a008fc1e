package server

import (
	"cmp"
	"context"
	"crypto/sha1"
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// ZooKeeper is a standalone ZooKeeper with a tick of 200 ms, so that sessions
// may be as short as 400 ms. Its log is not forced to disk: data survives a kill
// of the process and not a crash of the machine.
type ZooKeeper struct {
	Classpath     string   // of Java, with ZooKeeper in it; empty means the distribution's jars
	SuperPassword string   // of the digest user "super", who may do everything; empty for no such user
	Config        []string // more lines of zoo.cfg, as in "maxSessionTimeout=60000"
	Heap          string   // the most that Java uses, as in "1g"; empty means little
}

// zooKeeperFlags make a small Java that starts quickly and writes no file outside
// of its own directory.
var zooKeeperFlags = []string{
	"-XX:+UseSerialGC",
	"-XX:TieredStopAtLevel=1",
	"-XX:-UsePerfData",
}

func (ZooKeeper) name() string { return "zookeeper" }

func (z ZooKeeper) command(dir string, port int) (*exec.Cmd, error) {
	java, err := findBinary("", "java", "/usr/lib/jvm/*/bin/java")
	if err != nil {
		return nil, err
	}
	classpath, err := z.classpath()
	if err != nil {
		return nil, err
	}
	config := filepath.Join(dir, "zoo.cfg")
	if err := os.WriteFile(config, []byte(z.config(dir, port)), 0o600); err != nil {
		return nil, err
	}
	args := slices.Concat(zooKeeperFlags, []string{
		"-Xmx" + cmp.Or(z.Heap, "128m"),
		"-Djava.io.tmpdir=" + dir,
		"-cp", classpath,
		"org.apache.zookeeper.server.quorum.QuorumPeerMain", config,
	})
	return exec.Command(java, args...), nil
}

// classpath names two jars: the manifest of the first leads to all it needs but
// a logger. The environment may name those of another version.
func (z ZooKeeper) classpath() (string, error) {
	if classpath := cmp.Or(z.Classpath, os.Getenv("DLOCK_ZOOKEEPER_CLASSPATH")); classpath != "" {
		return classpath, nil
	}
	const jars = "/usr/share/java/"
	if _, err := findFile("zookeeper", jars+"zookeeper.jar"); err != nil {
		return "", err
	}
	return jars + "zookeeper.jar:" + jars + "slf4j-simple.jar", nil
}

// config is the zoo.cfg. A line that ZooKeeper does not know becomes a Java
// property whose name begins with "zookeeper.".
func (z ZooKeeper) config(dir string, port int) string {
	lines := []string{
		"dataDir=" + dir,
		"clientPortAddress=127.0.0.1",
		fmt.Sprintf("clientPort=%d", port),
		"tickTime=200",
		"maxClientCnxns=0",
		"admin.enableServer=false",
		"4lw.commands.whitelist=*",
		"extendedTypesEnabled=true",
		"forceSync=no",
		"preAllocSize=1024",
	}
	if z.SuperPassword != "" {
		lines = append(lines, "DigestAuthenticationProvider.superDigest="+superDigest(z.SuperPassword))
	}
	return strings.Join(append(lines, z.Config...), "\n") + "\n"
}

func superDigest(password string) string {
	sum := sha1.Sum([]byte("super:" + password))
	return "super:" + base64.StdEncoding.EncodeToString(sum[:])
}

// probe asks for the statistics, which a server that cannot serve yet refuses.
func (z ZooKeeper) probe(ctx context.Context, addr string) error {
	_, err := z.version(ctx, addr)
	return err
}

func (ZooKeeper) version(ctx context.Context, addr string) (string, error) {
	reply, err := ask(ctx, addr, "srvr")
	if err != nil {
		return "", err
	}
	const label = "Zookeeper version: "
	if !strings.HasPrefix(reply, label) {
		return "", fmt.Errorf("zookeeper answers %q", reply)
	}
	return parseVersion(reply)
}

func (ZooKeeper) shutdown() syscall.Signal { return syscall.SIGTERM }
