package backend

import (
	"context"
	"time"
)

const (
	// MaxRest is for how long Rest pauses at most where nothing else bounds it: much of what
	// a page takes may be the way to the server.
	MaxRest = 50 * time.Millisecond

	// RestInAll is for how long one Inspect pauses at most, between all pages together: it
	// has to end within FirstAnswer.
	RestInAll = FirstAnswer / 2

	restShare = 19 // pauses are so many times as long as what came before took
)

// Rest leaves a server to others between the pages of a long answer, after one that took so
// long: whoever asks has no more than a twentieth of the server's time. It returns for how
// long it has paused, which is most at most.
func Rest(ctx context.Context, took, most time.Duration) time.Duration {
	pause := max(min(restShare*took, most), 0)
	Sleep(ctx, pause)
	return pause
}
