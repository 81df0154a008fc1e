package workload

import "time"

// A Metric names a figure. The name ends in its unit.
type Metric string

// The metrics. Which a result has depends on the workload, and on whether the
// server can be asked.
const (
	Rate        Metric = "cycles_per_s"         // locked and unlocked again
	HandOvers   Metric = "hand_overs_per_s"     // cycles in which the holder was another than before
	LockP50     Metric = "lock_p50_us"          // from the call of Lock to its return
	LockP99     Metric = "lock_p99_us"          //
	LockMax     Metric = "lock_max_us"          // of waits that had not ended too
	PassP50     Metric = "pass_p50_us"          // from the call of Unlock to the return of the next Lock
	PassP99     Metric = "pass_p99_us"          //
	Fairness    Metric = "most_by_fewest"       // cycles of the busiest goroutine for one of the least busy; missing if one had none
	Starved     Metric = "starved"              // goroutines that never had the lock
	Violations  Metric = "violations"           // overlapping holders and lost updates
	Requests    Metric = "requests_per_cycle"   // of all clients, by the server's count
	ClientCPU   Metric = "client_cpu_us"        // a cycle, of this process
	ServerCPU   Metric = "server_cpu_us"        // a cycle
	Allocs      Metric = "allocs_per_cycle"     //
	AllocBytes  Metric = "bytes_per_cycle"      //
	Connections Metric = "connections"          // to the server
	Setup       Metric = "setup_ms"             // to take all locks, or to have everybody wait
	IdleRequest Metric = "idle_requests_per_s"  //
	IdleClient  Metric = "idle_client_cpu_pct"  // of one core
	IdleServer  Metric = "idle_server_cpu_pct"  // of one core
	Goroutines  Metric = "goroutines"           // of the library
	HeapEach    Metric = "heap_bytes_each"      // a lock held, or a waiter
	Lost        Metric = "lost"                 // locks that were not held to the end
	IdlePass    Metric = "pass_after_idle_us"   // the middle one of hand-overs with pauses between them
	QueuedRate  Metric = "queued_passes_per_s"  // hand-overs while the queue is long
	QueuedCPU   Metric = "queued_client_cpu_us" // a hand-over
	QueuedWork  Metric = "queued_server_cpu_us" // a hand-over
	QueuedAsks  Metric = "queued_requests"      // a hand-over
	HeldServer  Metric = "idle_server_cpu_each" // µs a second for each lock
	HeldClient  Metric = "idle_client_cpu_each" // µs a second for each lock
	Unfinished  Metric = "unfinished"           // waiters who were sent away
)

// A Result is what one workload found out about one contender.
type Result struct {
	Contender string             `json:"contender"`
	Figures   map[Metric]float64 `json:"figures"`

	// Locks and Passes are the distributions behind LockP50 and PassP50.
	Locks  []Quantile `json:"lock_us,omitempty"`
	Passes []Quantile `json:"pass_us,omitempty"`

	// Shares are the cycles of each goroutine.
	Shares []int64 `json:"shares,omitempty"`
}

// A Quantile is a value that the part Q of all values does not exceed.
type Quantile struct {
	Q  float64 `json:"q"`
	US float64 `json:"us"`
}

func newResult(c Contender) *Result {
	return &Result{Contender: c.Name, Figures: make(map[Metric]float64)}
}

// set records a figure, unless it stands for nothing.
func (r *Result) set(m Metric, value float64, known bool) {
	if known {
		r.Figures[m] = value
	}
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
func millis(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }
