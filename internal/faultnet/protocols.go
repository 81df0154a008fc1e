package faultnet

import (
	"bytes"
	"encoding/binary"
	"strconv"
)

// RESP frames the protocol of Redis, versions 2 and 3, pipelined or not. A
// request is one command. On a connection that subscribes, replies and messages
// look alike: any of them may be taken for the answer.
func RESP() (requests, replies Splitter) {
	requests = func(b []byte) (Unit, bool) {
		n, ok := respSize(b)
		return Unit{Size: n, Counts: true}, ok
	}
	replies = func(b []byte) (Unit, bool) {
		n, ok := respSize(b)
		return Unit{Size: n, Counts: b[0] != '>'}, ok
	}
	return requests, replies
}

// respSize returns the size of the first value of b, 0 when it is not whole.
func respSize(b []byte) (size int, ok bool) {
	head := bytes.Index(b, []byte("\r\n")) + len("\r\n")
	if head < len("\r\n") {
		return 0, true
	}
	switch b[0] {
	case '$', '=', '!':
		return respBlob(b, head)
	case '*', '~', '>', '%', '|':
		return respAggregate(b, head)
	default: // a simple value, or a command typed by hand
		return head, true
	}
}

func respBlob(b []byte, head int) (size int, ok bool) {
	n, err := strconv.Atoi(string(b[1 : head-2]))
	if err != nil {
		return 0, false
	}
	if n < 0 {
		return head, true
	}
	if n > len(b)-head-len("\r\n") {
		return 0, true
	}
	return head + n + len("\r\n"), true
}

func respAggregate(b []byte, head int) (size int, ok bool) {
	n, err := strconv.Atoi(string(b[1 : head-2]))
	if err != nil {
		return 0, false
	}
	switch b[0] {
	case '%':
		n *= 2
	case '|': // attributes stand before the value that they belong to
		n = n*2 + 1
	}
	size = head
	for range n {
		element, ok := respSize(b[size:])
		if !ok || element == 0 {
			return 0, ok
		}
		size += element
	}
	return size, true
}

// Postgres frames the protocol of PostgreSQL, version 3. A request is a Query
// or FunctionCall message, or everything up to a Sync. The startup does not
// count; a reply is complete with ReadyForQuery.
func Postgres() (requests, replies Splitter) {
	var client, server postgres
	return client.request, server.reply
}

// postgres is one direction of a PostgreSQL connection.
type postgres struct{ started bool }

func (p *postgres) request(b []byte) (Unit, bool) {
	if !p.started {
		return p.startup(b)
	}
	if b[0] == 'p' || b[0] == 'X' { // a password or the end, on their own
		n, ok := postgresSize(b)
		return Unit{Size: n}, ok
	}
	for size := 0; ; {
		n, ok := postgresSize(b[size:])
		if !ok || n == 0 {
			return Unit{}, ok
		}
		kind := b[size]
		size += n
		if kind == 'Q' || kind == 'S' || kind == 'F' {
			return Unit{Size: size, Counts: true}, true
		}
	}
}

// startup takes a message that has no type: a question for encryption, a
// request to cancel, or the startup itself.
func (p *postgres) startup(b []byte) (Unit, bool) {
	const version3 = 3
	n, ok := prefixed(b, 0)
	if !ok || n == 0 {
		return Unit{}, ok
	}
	if n < 8 {
		return Unit{}, false
	}
	p.started = binary.BigEndian.Uint16(b[4:]) == version3
	return Unit{Size: n}, true
}

func (p *postgres) reply(b []byte) (Unit, bool) {
	if !p.started && (b[0] == 'N' || b[0] == 'S' || b[0] == 'G') {
		return Unit{Size: 1}, true // the answer to a question for encryption
	}
	p.started = true
	n, ok := postgresSize(b)
	return Unit{Size: n, Counts: b[0] == 'Z'}, ok
}

// postgresSize returns the size of the first typed message of b.
func postgresSize(b []byte) (size int, ok bool) {
	if len(b) == 0 {
		return 0, true
	}
	n, ok := prefixed(b[1:], 0)
	if !ok || n == 0 {
		return 0, ok
	}
	return 1 + n, true
}

// ZooKeeper frames the protocol of ZooKeeper. Pings, watch events and the
// opening of the session do not count.
func ZooKeeper() (requests, replies Splitter) {
	return zooKeeperFrames(), zooKeeperFrames()
}

func zooKeeperFrames() Splitter {
	const header, event, ping = 4, -1, -2
	opened := false
	return func(b []byte) (Unit, bool) {
		n, ok := prefixed(b, header)
		if !ok || n == 0 {
			return Unit{}, ok
		}
		if !opened {
			opened = true
			return Unit{Size: n}, true
		}
		if n < 2*header {
			return Unit{}, false
		}
		xid := int32(binary.BigEndian.Uint32(b[header:]))
		return Unit{Size: n, Counts: xid != event && xid != ping}, true
	}
}

// HTTP2 frames HTTP/2 without encryption, as gRPC uses it. A request is a DATA
// frame: a small gRPC message, of a unary call or of a stream, is exactly one.
func HTTP2() (requests, replies Splitter) {
	preface := []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
	opened := false
	requests = func(b []byte) (Unit, bool) {
		if opened {
			return http2Frame(b, func(kind, _ byte) bool { return kind == http2Data })
		}
		if len(b) < len(preface) {
			return Unit{}, true
		}
		opened = true
		return Unit{Size: len(preface)}, bytes.HasPrefix(b, preface)
	}
	replies = func(b []byte) (Unit, bool) { return http2Frame(b, completesHTTP2Reply) }
	return requests, replies
}

const (
	http2Data    = 0
	http2Headers = 1
	http2Reset   = 3
)

// completesHTTP2Reply is true for a message and for the end of a stream, which
// is all that a failed call sends.
func completesHTTP2Reply(kind, flags byte) bool {
	const endStream = 1
	return kind == http2Data || kind == http2Reset || kind == http2Headers && flags&endStream != 0
}

func http2Frame(b []byte, counts func(kind, flags byte) bool) (Unit, bool) {
	const header = 9
	if len(b) < header {
		return Unit{}, true
	}
	length := int(b[0])<<16 | int(b[1])<<8 | int(b[2])
	if len(b) < header+length {
		return Unit{}, true
	}
	return Unit{
		Size:   header + length,
		Counts: counts(b[3], b[4]) && (length > 0 || b[3] != http2Data),
		Stream: binary.BigEndian.Uint32(b[5:]) & (1<<31 - 1),
	}, true
}

// prefixed returns the size of the first frame of b, 0 when it is not whole. A
// frame begins with its length in four bytes, to which uncounted is to be added.
func prefixed(b []byte, uncounted int) (size int, ok bool) {
	const prefix = 4
	if len(b) < prefix {
		return 0, true
	}
	size = int(int32(binary.BigEndian.Uint32(b))) + uncounted
	if size < prefix {
		return 0, false
	}
	if size > len(b) {
		return 0, true
	}
	return size, true
}
