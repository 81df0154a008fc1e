package simulation

import (
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"runtime/debug"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9/logging"
)

var _ = runtime.GC
func TestHeapTmp(t *testing.T) {
	n, _ := strconv.Atoi(os.Getenv("HEAPTMP"))
	if n == 0 {
		return
	}
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(256 << 20)
	logging.Disable()
	defer deepStacks()()
	before := used(t)
	var hours float64
	bad := 0
	for i := range n {
		p := planOf(uint64(7200000000+i), "")
		r := Run(t, p)
		if os.Getenv("SNAP") != "" && (i == 49 || i == n-1) {
			runtime.GC()
			f, _ := os.Create(fmt.Sprintf("/tmp/me/snap%d.prof", i))
			pprof.Lookup("heap").WriteTo(f, 0)
			f.Close()
		}
		hours += r.Virtual.Hours()
		bad += len(r.Violations)
		if len(r.Violations) > 0 {
			fmt.Println(p.Seed, p.Backend, p.Length, r.Violations)
		}
	}
	cpu := used(t) - before
	fmt.Println(n, "plans", hours, "hours", cpu.Seconds(), "s:", cpu.Seconds()/hours, bad)
}
