package server

import (
	"errors"
	"net"
	"time"
)

// greetLimit is how long a server may take to say something on a connection.
const greetLimit = 5 * time.Second

// DialImpatiently dials like net.DialTimeout. Until the server has said
// something nobody waits longer than a few seconds for that, whatever the
// connection's read deadline: a ZooKeeper that has just been restarted now and
// then keeps a connection and never answers its first message, and the driver
// would wait for several session timeouts.
func DialImpatiently(network, addr string, timeout time.Duration) (net.Conn, error) {
	conn, err := net.DialTimeout(network, addr, timeout)
	if err != nil {
		return nil, err
	}
	return &impatient{Conn: conn}, nil
}

type impatient struct {
	net.Conn
	greeted bool
}

func (c *impatient) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.greeted = c.greeted || n > 0
	return n, err
}

func (c *impatient) SetReadDeadline(t time.Time) error {
	if limit := time.Now().Add(greetLimit); !c.greeted && t.After(limit) {
		t = limit
	}
	return c.Conn.SetReadDeadline(t)
}

// WhenConnected repeats a request to ZooKeeper that was not sent because there was no
// connection: after a restart of the server it takes the driver a while to have one
// again. The driver's error for that is notSent, and the driver pauses before it returns
// it.
func WhenConnected(notSent error, request func() error) error {
	for end := time.Now().Add(time.Minute); ; {
		if err := request(); !errors.Is(err, notSent) || time.Now().After(end) {
			return err
		}
	}
}
