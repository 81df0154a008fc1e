package simulation

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// A worker is a process that runs plans, one after the other. What goes wrong there, a
// panic or goroutines that hang, ends no more than that process.
type worker struct {
	binary string
	flags  []string
	cmd    *exec.Cmd
	runs   int // of cmd
	in     io.WriteCloser
	out    *bufio.Reader
	errs   *bytes.Buffer
}

// lifetime is how many plans a process runs. One that has run thousands takes more than twice
// as long for each.
const lifetime = 500

// patience is how long one plan may take of real time.
var patience = time.Minute

// patienceWith is that of a plan: clients without a subscription, which ask 20 times a second for
// most of an hour, take 10 s of a processor, and a minute on a busy machine.
func patienceWith(p *Plan) time.Duration {
	if p.isLonger() {
		return 5 * patience
	}
	return patience
}

// mark is what the line of a result begins with.
const mark = "simulated: "

// run runs a plan in the worker's process, and begins that if need be.
func (w *worker) run(p *Plan) *Result {
	if w.runs++; w.runs > lifetime {
		w.close()
	}
	if w.cmd == nil {
		if err := w.start(); err != nil {
			return broken(p, err.Error())
		}
	}
	limit := time.AfterFunc(patienceWith(p), func() { _ = w.cmd.Process.Signal(syscall.SIGQUIT) })
	defer limit.Stop()
	if err := json.NewEncoder(w.in).Encode(p); err != nil {
		return broken(p, w.post(err))
	}
	for {
		text, err := w.out.ReadString('\n')
		if err != nil {
			return broken(p, w.post(err))
		}
		if rest, ok := strings.CutPrefix(text, mark); ok {
			r := new(Result)
			if err := json.Unmarshal([]byte(rest), r); err != nil {
				return broken(p, err.Error())
			}
			return r
		}
	}
}

func (w *worker) start() error {
	w.runs = 1
	w.cmd = exec.Command(w.binary, append(w.flags, "-test.run=^TestWorker$", "-test.timeout=0")...)
	w.cmd.Env = append(os.Environ(), "SIMULATION_WORKER=1", "GOMAXPROCS=1",
		"GODEBUG=madvdontneed=0") // the next plan uses the memory of the one before
	w.errs = new(bytes.Buffer)
	w.cmd.Stderr = w.errs
	in, err := w.cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	w.in, w.out = in, bufio.NewReaderSize(out, 1<<20)
	return w.cmd.Start()
}

// post ends a worker that has died, and says what it said last.
func (w *worker) post(err error) string {
	rest, _ := io.ReadAll(w.out)
	_ = w.cmd.Wait()
	w.cmd = nil
	text := string(rest) + w.errs.String()
	return fmt.Sprintf("%v: %s", err, text[:min(len(text), 1_000_000)])
}

func (w *worker) close() {
	if w.cmd != nil {
		_ = w.in.Close()
		_ = w.cmd.Wait()
		w.cmd = nil
	}
}

func broken(p *Plan, why string) *Result {
	return &Result{Seed: p.Seed, Violations: []Violation{{Rule: processLives, Text: why}}}
}

// processLives is the rule of a plan whose process has ended, or was stopped.
const processLives = "the process lives"

// fails reports whether a plan breaks a rule, once in a few runs: the scheduler decides
// a little too.
func (w *worker) fails(p *Plan, rule string) *Result {
	for range 2 {
		r := w.run(p)
		for _, v := range r.Violations {
			if v.Rule == rule {
				return r
			}
		}
	}
	return nil
}

// explain says of a failure all there is to know: what is left of its plan, and the
// history of that.
func (w *worker) explain(p *Plan, first *Result, shrinking time.Duration) string {
	rule, last := first.Violations[0].Rule, first
	end := time.Now().Add(shrinking)
	p = Shrink(p, func(q *Plan) bool {
		if time.Now().After(end) {
			return false
		}
		r := w.fails(q, rule)
		if r != nil {
			last = r
		}
		return r != nil
	})
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d on %s:\n", p.Seed, p.Backend)
	for _, v := range last.Violations {
		fmt.Fprintf(&b, "  %v %s: %s\n", v.At, v.Rule, v.Text)
	}
	plan, _ := json.Marshal(p)
	fmt.Fprintf(&b, "what is left of the plan: %s\n%s", plan, last.Table(len(p.Clients)))
	return b.String()
}
