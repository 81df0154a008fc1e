package server

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

const testLimit = 2 * time.Minute

// A subject is a kind of server with the least client that can write one record
// to it and read it back.
type subject struct {
	kind    Kind
	version string // what the version begins with
	write   func(t *testing.T, addr string)
	read    func(t *testing.T, addr string) string // holds record when it is there
}

const record = "kept"

var subjects = map[string]subject{
	"redis":     {kind: Redis{AppendOnly: true}, write: redisWrite, read: redisRead},
	"postgres":  {kind: Postgres{}, write: postgresWrite, read: postgresRead},
	"etcd":      {kind: Etcd{}, version: "3.7.", write: etcdWrite, read: etcdRead},
	"old-etcd":  {kind: Etcd{Distribution: true}, version: "3.", write: etcdWrite, read: etcdRead},
	"zookeeper": {kind: ZooKeeper{}, version: "3.", write: zooKeeperWrite, read: zooKeeperRead},
}

func eachSubject(t *testing.T, test func(t *testing.T, sub subject)) {
	for name, sub := range subjects {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, sub)
		})
	}
}

// talk sends requests of which the last one makes the server hang up, and
// returns all that it says.
func talk(t *testing.T, addr, requests string) string {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	must(t, err)
	defer conn.Close()
	must(t, conn.SetDeadline(time.Now().Add(testLimit)))
	_, err = io.WriteString(conn, requests)
	must(t, err)
	replies, err := io.ReadAll(conn)
	must(t, err)
	return string(replies)
}

func redisWrite(t *testing.T, addr string) { talk(t, addr, "SET record "+record+"\r\nQUIT\r\n") }

func redisRead(t *testing.T, addr string) string { return talk(t, addr, "GET record\r\nQUIT\r\n") }

func postgresWrite(t *testing.T, addr string) {
	talk(t, addr, postgresQuery("CREATE TABLE record AS SELECT '"+record+"'::text AS name"))
}

func postgresRead(t *testing.T, addr string) string {
	return talk(t, addr, postgresQuery("SELECT name FROM record"))
}

// postgresQuery puts a simple query between the greeting and the goodbye.
func postgresQuery(sql string) string {
	hello, goodbye := postgresGreeting()[:len(postgresGreeting())-5], "X\x00\x00\x00\x04"
	query := binary.BigEndian.AppendUint32([]byte("Q"), uint32(5+len(sql)))
	return hello + string(query) + sql + "\x00" + goodbye
}

func etcdWrite(t *testing.T, addr string) { etcdCall(t, addr, "put", record) }

func etcdRead(t *testing.T, addr string) string {
	if strings.Contains(etcdCall(t, addr, "range", ""), base64.StdEncoding.EncodeToString([]byte(record))) {
		return record
	}
	return ""
}

func etcdCall(t *testing.T, addr, method, value string) string {
	t.Helper()
	encode := base64.StdEncoding.EncodeToString
	body := fmt.Sprintf(`{"key":%q`, encode([]byte("record")))
	if value != "" {
		body += fmt.Sprintf(`,"value":%q`, encode([]byte(value)))
	}
	client := http.Client{Timeout: testLimit, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Post("http://"+addr+"/v3/kv/"+method, "application/json", strings.NewReader(body+"}"))
	must(t, err)
	defer response.Body.Close()
	reply, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v", response.Status, reply, err)
	}
	return string(reply)
}

func zooKeeperWrite(t *testing.T, addr string) {
	const create, allPermissions, persistent = 1, 31, 0
	talk(t, addr, zooKeeperSession(packet(1, create, "/record", record,
		1, allPermissions, "world", "anyone", persistent)))
}

func zooKeeperRead(t *testing.T, addr string) string {
	const getData, noWatch = 4, false
	return talk(t, addr, zooKeeperSession(packet(1, getData, "/record", noWatch)))
}

// zooKeeperSession puts requests between those that open and close a session.
func zooKeeperSession(requests ...string) string {
	const version, lastZxid, timeoutMS, noSession, closeSession = 0, int64(0), 4000, int64(0), -11
	open := packet(version, lastZxid, timeoutMS, noSession, string(make([]byte, 16)))
	return open + strings.Join(requests, "") + packet(9, closeSession)
}

// packet encodes fields in ZooKeeper's way: numbers in network order, strings
// and the packet itself after their lengths.
func packet(fields ...any) string {
	var body []byte
	for _, field := range fields {
		switch value := field.(type) {
		case int:
			body = binary.BigEndian.AppendUint32(body, uint32(int32(value)))
		case int64:
			body = binary.BigEndian.AppendUint64(body, uint64(value))
		case bool:
			body = append(body, 0)
		case string:
			body = append(binary.BigEndian.AppendUint32(body, uint32(len(value))), value...)
		}
	}
	return string(binary.BigEndian.AppendUint32(nil, uint32(len(body)))) + string(body)
}
