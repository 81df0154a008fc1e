package faultnet_test

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"github.com/dlock-go/dlock/internal/faultnet"
)

// unit is a unit with its bytes.
type unit struct {
	raw    string
	counts bool
	stream uint32
}

func counts(raw string) unit { return unit{raw: raw, counts: true} }

func other(raw string) unit { return unit{raw: raw} }

func (u unit) on(stream uint32) unit {
	u.stream = stream
	return u
}

var foreign = unit{raw: "foreign"}

// split cuts text by a splitter that gets it in pieces of the given size.
func split(s faultnet.Splitter, text string, piece int) []unit {
	var pending []byte
	var units []unit
	for chunk := range slices.Chunk([]byte(text), piece) {
		pending = append(pending, chunk...)
		for len(pending) > 0 {
			u, ok := s(pending)
			if !ok {
				return append(units, foreign)
			}
			if u.Size == 0 {
				break
			}
			units = append(units, unit{raw: string(pending[:u.Size]), counts: u.Counts, stream: u.Stream})
			pending = pending[u.Size:]
		}
	}
	if len(pending) > 0 {
		units = append(units, unit{raw: "rest " + string(pending)})
	}
	return units
}

func requestsOf(f faultnet.Framing) func() faultnet.Splitter {
	return func() faultnet.Splitter { s, _ := f(); return s }
}

func repliesOf(f faultnet.Framing) func() faultnet.Splitter {
	return func() faultnet.Splitter { _, s := f(); return s }
}

// sized puts the length of body before it, with extra added.
func sized(body string, extra int) string {
	return string(binary.BigEndian.AppendUint32(nil, uint32(len(body)+extra))) + body
}

func pgMessage(kind byte, body string) string { return string(kind) + sized(body, 4) }

func xid(n int32, body string) string {
	return sized(string(binary.BigEndian.AppendUint32(nil, uint32(n)))+body, 0)
}

func h2Frame(kind, flags byte, stream uint32, body string) string {
	head := []byte{0, byte(len(body) >> 8), byte(len(body)), kind, flags}
	return string(binary.BigEndian.AppendUint32(head, stream)) + body
}

func TestSplitters(t *testing.T) {
	const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	startup := sized("\x00\x03\x00\x00user\x00x\x00\x00", 4)
	encryption := sized("\x04\xd2\x16\x2f", 4)
	for _, tc := range []struct {
		name string
		make func() faultnet.Splitter
		want []unit
	}{
		{"RESP requests", requestsOf(faultnet.RESP), []unit{
			counts("*1\r\n$4\r\nPING\r\n"), counts("PING\r\n"),
			counts("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$4\r\na\r\nb\r\n"), counts("*2\r\n$3\r\nGET\r\n$0\r\n\r\n"),
		}},
		{"RESP replies", repliesOf(faultnet.RESP), []unit{
			counts("+OK\r\n"), counts("-ERR no\r\n"), counts(":12\r\n"), counts("$-1\r\n"), counts("*-1\r\n"),
			counts("*0\r\n"), counts("_\r\n"), counts("#t\r\n"), counts(",1.5\r\n"), counts("(123\r\n"),
			counts("*2\r\n*1\r\n:1\r\n$1\r\na\r\n"), counts("%1\r\n+k\r\n*1\r\n:1\r\n"), counts("~1\r\n:1\r\n"),
			counts("=5\r\ntxt:a\r\n"), counts("!3\r\nERR\r\n"), other(">2\r\n+message\r\n$1\r\nx\r\n"),
			counts("|1\r\n+ttl\r\n:1\r\n:7\r\n"),
		}},
		{"Postgres requests", requestsOf(faultnet.Postgres), []unit{
			other(encryption), other(startup), other(pgMessage('p', "secret")), counts(pgMessage('Q', "SELECT 1\x00")),
			counts(pgMessage('P', "x") + pgMessage('B', "") + pgMessage('E', "") + pgMessage('S', "")),
			counts(pgMessage('F', "f")), other(pgMessage('X', "")),
		}},
		{"Postgres cancel", requestsOf(faultnet.Postgres), []unit{other(sized("\x04\xd2\x16\x2ePIDSKEY.", 4))}},
		{"Postgres replies", repliesOf(faultnet.Postgres), []unit{
			other("N"), other(pgMessage('R', "ok")), other(pgMessage('S', "a")), counts(pgMessage('Z', "I")),
			other(pgMessage('N', "n")), other(pgMessage('E', "e")), counts(pgMessage('Z', "I")), other(pgMessage('A', "event")),
		}},
		{"ZooKeeper", requestsOf(faultnet.ZooKeeper), []unit{
			other(sized("connect", 0)), counts(xid(1, "create")), other(xid(-2, "ping")), other(xid(-1, "event")),
			counts(xid(-4, "auth")), counts(xid(2, "")),
		}},
		{"HTTP2 requests", requestsOf(faultnet.HTTP2), []unit{
			other(preface), other(h2Frame(4, 0, 0, "settings")), other(h2Frame(1, 4, 1, "path")).on(1),
			counts(h2Frame(0, 1, 1, "put")).on(1), counts(h2Frame(0, 0, 3, strings.Repeat("x", 300))).on(3),
			other(h2Frame(0, 1, 3, "")).on(3),
		}},
		{"HTTP2 replies", repliesOf(faultnet.HTTP2), []unit{
			other(h2Frame(6, 0, 0, "ping")), other(h2Frame(1, 4, 1, "head")).on(1), counts(h2Frame(0, 0, 1, "data")).on(1),
			counts(h2Frame(1, 5, 1, "trailer")).on(1), counts(h2Frame(3, 0, 3, "code")).on(3),
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			text := wire(tc.want)
			for _, piece := range []int{1, 2, 7, len(text)} {
				if got := split(tc.make(), text, piece); !slices.Equal(got, tc.want) {
					t.Errorf("in pieces of %d: got %+v, want %+v", piece, got, tc.want)
				}
			}
		})
	}
}

func wire(units []unit) string {
	var text strings.Builder
	for _, u := range units {
		text.WriteString(u.raw)
	}
	return text.String()
}

func TestForeignBytes(t *testing.T) {
	for name, tc := range map[string]struct {
		make func() faultnet.Splitter
		text string
	}{
		"RESP blob":         {requestsOf(faultnet.RESP), "$x\r\n"},
		"RESP aggregate":    {requestsOf(faultnet.RESP), "*x\r\n"},
		"RESP element":      {requestsOf(faultnet.RESP), "*1\r\n$x\r\n"},
		"Postgres startup":  {requestsOf(faultnet.Postgres), sized("abc", 4)},
		"Postgres length":   {repliesOf(faultnet.Postgres), "R\x00\x00\x00\x00"},
		"Postgres negative": {requestsOf(faultnet.Postgres), "\xff\xff\xff\xff"},
		"ZooKeeper frame":   {requestsOf(faultnet.ZooKeeper), sized("connect", 0) + sized("ab", 0)},
		"HTTP2 preface":     {requestsOf(faultnet.HTTP2), "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			got := split(tc.make(), tc.text, 1)
			if len(got) == 0 || got[len(got)-1] != foreign {
				t.Fatalf("got %+v, want foreign bytes", got)
			}
		})
	}
}

func FuzzSplitters(f *testing.F) {
	f.Add([]byte("*1\r\n$4\r\nPING\r\n"))
	f.Add([]byte("$9223372036854775807\r\n"))
	f.Add([]byte("\x00\x00\x00\x08\x00\x03\x00\x00Q\x00\x00\x00\x04"))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, framing := range []faultnet.Framing{faultnet.RESP, faultnet.Postgres, faultnet.ZooKeeper, faultnet.HTTP2} {
			requests, replies := framing()
			for _, s := range []faultnet.Splitter{requests, replies} {
				for rest := b; len(rest) > 0; {
					u, ok := s(rest)
					if u.Size < 0 || u.Size > len(rest) {
						t.Fatalf("unit of %d bytes in %d", u.Size, len(rest))
					}
					if !ok || u.Size == 0 {
						break
					}
					rest = rest[u.Size:]
				}
			}
		}
	})
}
