package redis

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/redis/go-redis/v9"
)

// errGarbled is a reply that is none. The connection is of no use any more.
var errGarbled = errors.New("the server's reply cannot be read")

// A refusal is an error that the server has replied.
type refusal string

var _ redis.Error = refusal("")

func (r refusal) Error() string { return string(r) }
func (r refusal) RedisError()   {}

// appendCommand appends a command in the server's protocol.
func appendCommand(to []byte, args []any) []byte {
	to = appendHead(to, '*', len(args))
	for _, arg := range args {
		switch arg := arg.(type) {
		case string:
			to = appendString(to, arg)
		case *string:
			to = appendString(to, *arg)
		case *keyArg:
			to = appendBytes(to, appendKey(make([]byte, 0, 96), arg.request.Name))
		case *idArg:
			to = appendBytes(to, arg.appendID(make([]byte, 0, 96)))
		case int:
			to = appendInt(to, int64(arg))
		case int64:
			to = appendInt(to, arg)
		case uint64:
			to = appendBytes(to, strconv.AppendUint(make([]byte, 0, 20), arg, 10))
		default:
			to = appendString(to, fmt.Sprint(arg))
		}
	}
	return to
}

func appendHead(to []byte, kind byte, n int) []byte {
	to = append(to, kind)
	to = strconv.AppendInt(to, int64(n), 10)
	return append(to, '\r', '\n')
}

func appendString(to []byte, s string) []byte {
	to = appendHead(to, '$', len(s))
	to = append(to, s...)
	return append(to, '\r', '\n')
}

func appendInt(to []byte, n int64) []byte {
	return appendBytes(to, strconv.AppendInt(make([]byte, 0, 20), n, 10))
}

func appendBytes(to, b []byte) []byte {
	to = appendHead(to, '$', len(b))
	to = append(to, b...)
	return append(to, '\r', '\n')
}

// readReply reads one reply. An error of which replied knows what the server
// said is the reply; after any other, what comes next is not known.
func readReply(r *bufio.Reader) (any, error) {
	line, err := r.ReadSlice('\n')
	if err != nil {
		return nil, err
	}
	if len(line) < 3 {
		return nil, errGarbled
	}
	kind, text := line[0], line[1:len(line)-2]
	switch kind {
	case '+':
		return string(text), nil
	case '-':
		return nil, refusal(text)
	}
	n, err := strconv.ParseInt(string(text), 10, 64)
	switch {
	case err != nil:
		return nil, errGarbled
	case kind == ':':
		return n, nil
	case n < 0:
		return nil, redis.Nil
	case kind == '$':
		return readString(r, int(n))
	case kind == '*':
		return readList(r, int(n))
	}
	return nil, errGarbled
}

func readString(r *bufio.Reader, n int) (any, error) {
	text := make([]byte, n+2)
	if _, err := io.ReadFull(r, text); err != nil {
		return nil, err
	}
	return string(text[:n]), nil
}

func readList(r *bufio.Reader, n int) (any, error) {
	list := make([]any, 0, min(n, 1024))
	for range n {
		v, err := readReply(r)
		switch _, said := replied(err); {
		case err == nil, err == redis.Nil:
			list = append(list, v)
		case said:
			list = append(list, err)
		default:
			return nil, err
		}
	}
	return list, nil
}
