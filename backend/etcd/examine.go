package etcd

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/dlock-go/dlock/backend"
)

// warnOfVersion tells the logger if a member has a version that can cost a lock. It
// asks one of them, and nobody waits for that.
func (b *Backend) warnOfVersion(log *slog.Logger) {
	b.janitor.Go(func(ctx context.Context) {
		ctx, cancel := backend.Bound(ctx, backend.FirstAnswer)
		defer cancel()
		reply, err := b.status(ctx)
		if err != nil {
			return
		}
		if fault := versionFault(reply.Version); fault != "" {
			log.Warn("dlock: etcd: the server's version can cost a lock: use 3.4.31, 3.5.13, 3.6 or later", "version", reply.Version, "fault", fault)
		}
	})
}

// faultOf says what is wrong with a version of the server, nothing if that is not
// known.
func versionFault(version string) string {
	var major, minor, patch int
	if n, _ := fmt.Sscanf(version, "%d.%d.%d", &major, &minor, &patch); n < 3 || major != 3 {
		return ""
	}
	switch {
	case minor == 5 && patch < 3:
		return "a member that is killed may come back with other data than the rest (etcd-io/etcd#13766)"
	case minor < 4, minor == 4 && patch < 31, minor == 5 && patch < 13:
		return "a leader that has stalled acknowledges renewals of leases that have run out (etcd-io/etcd#15247)"
	}
	return ""
}
