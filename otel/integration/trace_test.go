package integration

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/server"
	dlockotel "github.com/dlock-go/dlock/otel"
)

var update = flag.Bool("update", false, "write the printout into README.md")

const (
	tracedURL    = "DLOCK_TEST_TRACED_URL" // makes the test binary one of the processes
	traceContext = "DLOCK_TEST_TRACEPARENT"
)

// A tracedSpan is what a process tells of one of its spans.
type tracedSpan struct {
	Process           int
	Name, Trace       string
	ID, Parent        string
	Links             []string
	Start, End        time.Time
	Token             int64
	Outcome, HandOver string
	EndedBy           string
}

// TestTraceOfThreeProcesses has processes hand a lock over, each in the span of one caller,
// whose context they were given as over HTTP. README.md has the printout.
func TestTraceOfThreeProcesses(t *testing.T) {
	url := "redis://" + server.Start(t, server.Redis{}).Addr()
	watcher, err := dlock.Open(t.Context(), url, nil)
	must(t, err)
	t.Cleanup(func() { must(t, watcher.Close(context.Background())) })

	provider := trace.NewTracerProvider()
	ctx, caller := provider.Tracer("test").Start(t.Context(), "deploy")
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)

	var processes []*tracedProcess
	for number := range 3 {
		processes = append(processes, startTraced(t, number+1, url, carrier.Get("traceparent")))
		for ; ; time.Sleep(time.Millisecond) {
			state, err := watcher.Inspect(t.Context(), "deploy")
			must(t, err)
			if len(state.Holders) == 1 && len(state.Waiters) == number {
				break
			}
		}
	}
	must(t, processes[0].input.Close())
	var all []tracedSpan
	for _, p := range processes {
		_ = p.input.Close()
		all = append(all, p.spans()...)
	}
	for _, s := range all {
		if s.Trace != caller.SpanContext().TraceID().String() || s.Parent != caller.SpanContext().SpanID().String() {
			t.Errorf("%s of process %d is not under the caller's span", s.Name, s.Process)
		}
		if s.Start.IsZero() || s.End.Before(s.Start) {
			t.Errorf("%s of process %d is from %v to %v", s.Name, s.Process, s.Start, s.End)
		}
	}
	const readme = "../README.md"
	text, err := os.ReadFile(readme)
	must(t, err)
	got := "```\n" + printTrace(all) + "```\n"
	if *update {
		head, rest, _ := strings.Cut(string(text), traceHeading)
		_, tail, _ := strings.Cut(rest, "\n```\n") // the end of the printout there
		must(t, os.WriteFile(readme, []byte(head+traceHeading+got+tail), 0o644))
		return
	}
	if !strings.Contains(string(text), traceHeading+got) {
		t.Errorf("README.md does not say after %q:\n%s", traceHeading, got)
	}
}

const traceHeading = "Three processes hand a lock over (`->` is a link):\n\n"

// printTrace prints spans in the order of their beginnings. Tokens are numbered from 1.
func printTrace(all []tracedSpan) string {
	slices.SortStableFunc(all, func(a, b tracedSpan) int { return a.Start.Compare(b.Start) })
	number := make(map[string]int)
	var tokens []int64
	for i, s := range all {
		number[s.ID] = i + 1
		if s.Token > 0 {
			tokens = append(tokens, s.Token)
		}
	}
	slices.Sort(tokens)
	tokens = slices.Compact(tokens)
	var out strings.Builder
	for i, s := range all {
		fmt.Fprintf(&out, "%d process %d: %s", i+1, s.Process, s.Name)
		for _, a := range [][2]string{
			{"outcome", s.Outcome}, {"hand_over", s.HandOver}, {"end", s.EndedBy}, {"token", fmt.Sprint(slices.Index(tokens, s.Token) + 1)},
		} {
			if a[1] != "" {
				fmt.Fprintf(&out, " %s=%s", a[0], a[1])
			}
		}
		for _, l := range s.Links {
			fmt.Fprintf(&out, " ->%d", number[l])
		}
		out.WriteByte('\n')
	}
	return out.String()
}

type tracedProcess struct {
	t      *testing.T
	cmd    *exec.Cmd
	input  io.Closer
	output *bufio.Reader
	errors bytes.Buffer
}

func startTraced(t *testing.T, number int, url, parent string) *tracedProcess {
	p := &tracedProcess{t: t, cmd: exec.Command(os.Args[0], fmt.Sprint(number))}
	p.cmd.Env = append(os.Environ(), tracedURL+"="+url, traceContext+"="+parent)
	p.cmd.Stderr = &p.errors
	input, err := p.cmd.StdinPipe()
	must(t, err)
	output, err := p.cmd.StdoutPipe()
	must(t, err)
	p.input, p.output = input, bufio.NewReader(output)
	must(t, p.cmd.Start())
	t.Cleanup(func() { _ = p.cmd.Process.Kill() })
	return p
}

// spans waits for the end of the process, and returns what it has traced.
func (p *tracedProcess) spans() (all []tracedSpan) {
	err := json.NewDecoder(p.output).Decode(&all)
	if exit := p.cmd.Wait(); err != nil || exit != nil {
		p.t.Fatalf("a process ends with %v, %v: %s", err, exit, p.errors.String())
	}
	return all
}

// runTraced is one of the processes: it takes the lock, keeps it until its input ends,
// gives it back, and writes its spans to its output.
func runTraced(number int, url string) error {
	exporter := tracetest.NewInMemoryExporter()
	provider := trace.NewTracerProvider(trace.WithSyncer(exporter))
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{"traceparent": os.Getenv(traceContext)})
	c, err := dlock.Open(ctx, url, &dlock.Options{Hooks: dlockotel.Hooks(dlockotel.WithTracerProvider(provider))})
	if err != nil {
		return err
	}
	err = dlock.Do(ctx, c.Mutex("deploy"), func(context.Context, *dlock.Lease) error {
		_, err := io.Copy(io.Discard, os.Stdin)
		return err
	})
	if err == nil {
		err = c.Close(ctx)
	}
	if err != nil {
		return err
	}
	var all []tracedSpan
	for _, s := range exporter.GetSpans() {
		all = append(all, tracedSpanOf(number, s))
	}
	return json.NewEncoder(os.Stdout).Encode(all)
}

func tracedSpanOf(process int, s tracetest.SpanStub) tracedSpan {
	out := tracedSpan{
		Process: process, Name: s.Name, Trace: s.SpanContext.TraceID().String(), ID: s.SpanContext.SpanID().String(),
		Parent: s.Parent.SpanID().String(), Start: s.StartTime, End: s.EndTime,
	}
	for _, l := range s.Links {
		out.Links = append(out.Links, l.SpanContext.SpanID().String())
	}
	for _, a := range s.Attributes {
		switch a.Key {
		case dlockotel.TokenKey:
			out.Token = a.Value.AsInt64()
		case dlockotel.OutcomeKey:
			out.Outcome = a.Value.AsString()
		case dlockotel.HandOverKey:
			out.HandOver = a.Value.AsString()
		case dlockotel.EndKey:
			out.EndedBy = a.Value.AsString()
		}
	}
	return out
}
