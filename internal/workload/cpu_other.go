//go:build !unix

package workload

import "time"

// CPUTime is 0: it is not known here.
func CPUTime() time.Duration { return 0 }
