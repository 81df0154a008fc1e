package redis

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/server"
)

// TestVoteRefusedByTheDisk has a server refuse all writes because it could not save a snapshot. It
// has nothing of a vote that it has refused, and is not told to forget that.
func TestVoteRefusedByTheDisk(t *testing.T) {
	t.Parallel()
	ctx, c := within(t), plainClient(t, server.StartAll(t, server.Redis{Args: []string{"--save", "3600 1", "--enable-protected-configs", "yes"}})[0])
	must[int64](t)(c.HSet(ctx, bootKey, "since", 1).Result())
	b := newBackend(t, c, nil)
	must[any](t)(c.Do(ctx, "config", "set", "dbfilename", strings.Repeat("x", 300)).Result()) // no file has such a name
	_ = c.BgSave(ctx)
	eventually(t, "it refuses to write", func() bool { return redis.HasErrorPrefix(c.Set(ctx, "any", "", 0).Err(), "MISCONF") })
	r := requestOf(t, "client", backend.Exclusive)
	a := b.newAcquisition(&r, &backend.Ballot{Token: uint64(time.Now().UnixMicro())})
	if _, err := a.ask(ctx, "t"); err == nil || !strings.Contains(err.Error(), "MISCONF") {
		t.Fatalf("the vote: %v", err)
	}
	if a.owed || a.doubt {
		t.Error("a vote that was refused is to be given back")
	}
}
