package zk

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"
	"time"
)

// message is what a server may say: a head with the number of the request, and words.
func message(number uint32, words ...uint32) []byte {
	b := binary.BigEndian.AppendUint32(nil, number)
	b = append(b, 0, 0, 0, 0, 0, 0, 0, 9) // the change
	for _, w := range words {
		b = binary.BigEndian.AppendUint32(b, w)
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...)
}

// connectionTo returns a connection over which the server says what is in raw.
func connectionTo(t testing.TB, raw []byte, greeted bool) *connection {
	near, far := net.Pipe()
	t.Cleanup(func() { near.Close(); far.Close() })
	go func() {
		_, _ = far.Write(raw)
		far.Close()
	}()
	s := newSession(new(Backend))
	s.timeout = time.Minute
	l := &connection{session: s, established: greeted}
	s.connection = l
	l.attach(near)
	return l
}

// TestHostileLengths has a server say that more follows than the driver should make
// room for, or less than it goes by without looking.
func TestHostileLengths(t *testing.T) {
	long := binary.BigEndian.AppendUint32(nil, 1<<31)
	for name, c := range map[string]struct {
		raw     []byte
		greeted bool
		code    int32
	}{
		"length of a message":    {append(long, make([]byte, 64)...), true, 0},
		"short message":          {append(binary.BigEndian.AppendUint32(nil, 15), make([]byte, 64)...), true, 0},
		"length of the greeting": {append(long, make([]byte, 64)...), false, 0},
		"length of the password": {message(0, 0, 1<<31, 0, 0), false, 0},
		"number of children":     {message(1, 0, 1<<30, 0, 0), true, getChildren},
		"number of an ACL":       {message(1, 0, 1<<30, 0, 0), true, getACL},
		"no number of children":  {message(1, 0), true, getChildren},
		"watches not taken":      {message(1, 1<<31), true, setWatches},
	} {
		l := connectionTo(t, c.raw, c.greeted)
		l.pending = []pendingRequest{{number: 1, code: c.code, sent: time.Now()}}
		if _, err := l.Read(make([]byte, 4)); !errors.Is(err, errInvalidAnswer) {
			t.Errorf("%s: %v", name, err)
		}
	}
	l := connectionTo(t, message(1, 0, 1, 0, 0), true)
	l.pending = []pendingRequest{{number: 1, code: getChildren, sent: time.Now()}}
	if _, err := l.Read(make([]byte, 4)); err != nil {
		t.Errorf("one child: %v", err)
	}
}

// FuzzConnection has the driver read whatever a server says through a connection.
func FuzzConnection(f *testing.F) {
	f.Add(message(1, 0, 1, 0, 0), true)
	f.Add(message(0, 0, 0, 16, 0, 0, 0, 0), false)
	f.Fuzz(func(t *testing.T, raw []byte, greeted bool) {
		l := connectionTo(t, raw, greeted)
		l.pending = []pendingRequest{{number: 1, code: getChildren}, {number: 2, code: setWatches}}
		var got bytes.Buffer
		for buf := make([]byte, 64); ; {
			n, err := l.Read(buf)
			got.Write(buf[:n])
			if err != nil {
				break
			}
		}
		if !bytes.HasPrefix(raw, got.Bytes()) {
			t.Errorf("the driver reads %x of %x", got.Bytes(), raw)
		}
	})
}

// TestFailedWrite has the driver learn of it by what it reads.
func TestFailedWrite(t *testing.T) {
	near, far := net.Pipe()
	far.Close()
	l := &connection{Conn: near, session: &session{backend: new(Backend)}}
	if n, err := l.Write(make([]byte, 12)); n != 12 || err != nil {
		t.Errorf("the driver is told of %d bytes, %v", n, err)
	}
	if _, err := near.Read(make([]byte, 1)); err != io.ErrClosedPipe {
		t.Errorf("the connection goes on: %v", err)
	}
}
