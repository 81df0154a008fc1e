package simulation

import (
	"context"
	"log/slog"
	"reflect"
	"sync"

	goredis "github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/redis"
)

// announce is what the client of a member of a quorum runs on each new connection, if a URL
// has made it. It is taken from such a client: nobody else can have it.
var announce = sync.OnceValue(func() onConnect { return onConnectOf(false) })

// announceNothing is likewise what a client runs that takes no lock.
var announceNothing = sync.OnceValue(func() onConnect { return onConnectOf(true) })

type onConnect = func(context.Context, *goredis.Conn) error

func onConnectOf(inspectOnly bool) onConnect {
	u, err := backend.ParseURL("redis://10.0.0.1")
	if err != nil {
		panic(err)
	}
	b, err := backend.Open(context.Background(), backend.Config{
		URL: u, Member: true, InspectOnly: inspectOnly, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		panic(err)
	}
	defer b.Close(context.Background())
	client := *private[goredis.UniversalClient](b.(*redis.Backend), "client")
	return client.(*goredis.Client).Options().OnConnect
}

// goByAnnouncements has b rely on what its connections have announced.
func goByAnnouncements(b *redis.Backend) { *private[bool](b, "member") = true }

// onlyAsk has b take no lock.
func onlyAsk(b *redis.Backend) {
	goByAnnouncements(b)
	*private[bool](b, "inspectOnly") = true
}

func private[T any](b *redis.Backend, field string) *T {
	return (*T)(reflect.ValueOf(b).Elem().FieldByName(field).Addr().UnsafePointer())
}
