package server

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
)

// redisCommand returns the whole reply to one command, as it came, if it comes soon.
func redisCommand(ctx context.Context, addr, command string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	return patientCommand(ctx, addr, command)
}

// patientCommand is the same for as long as ctx lasts: a command that changes something
// may not be worth a second try.
func patientCommand(ctx context.Context, addr, command string) (string, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if _, err := io.WriteString(conn, command+"\r\n"); err != nil {
		return "", err
	}
	var reply strings.Builder
	if err := readReply(bufio.NewReader(conn), &reply); err != nil {
		return "", err
	}
	if strings.HasPrefix(reply.String(), "-") {
		return "", fmt.Errorf("%s: %s", command, strings.TrimSpace(reply.String()))
	}
	return reply.String(), nil
}

// readReply copies one reply, with those inside it.
func readReply(r *bufio.Reader, reply *strings.Builder) error {
	line, err := r.ReadString('\n')
	if err != nil {
		return err
	}
	reply.WriteString(line)
	n, _ := strconv.Atoi(strings.TrimSpace(line[1:])) // where the line has a number
	switch {
	case n < 0: // nothing follows
	case line[0] == '$':
		_, err = io.CopyN(reply, r, int64(n)+2)
	case line[0] == '*':
		for ; n > 0 && err == nil; n-- {
			err = readReply(r, reply)
		}
	}
	return err
}
