package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/examples/recipes/internal/try"
)

// pod is one copy of the program.
type pod struct {
	t       *testing.T
	url     string
	terms   chan uint64   // the token of each term that begins
	over    chan error    // why each term's context has ended
	goOn    chan struct{} // lets work return
	sigterm func()
	ended   chan error
}

func start(t *testing.T, locks *dlock.Client) *pod {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	p := &pod{
		t: t, url: "http://" + listener.Addr().String(), sigterm: cancel,
		terms: make(chan uint64, 10), over: make(chan error, 10), goOn: make(chan struct{}), ended: make(chan error, 1),
	}
	go func() {
		p.ended <- run(ctx, locks, listener, func(ctx context.Context, token uint64) error {
			p.terms <- token
			<-ctx.Done()
			p.over <- context.Cause(ctx)
			<-p.goOn
			return nil
		})
	}()
	return p
}

// says asks a probe.
func (p *pod) says(path string) bool {
	reply, err := http.Get(p.url + path)
	if err != nil {
		p.t.Error(err)
		return false
	}
	reply.Body.Close()
	return reply.StatusCode == http.StatusOK
}

// A pod that is asked to stop is not ready any more, ends its work, and only then another
// leads, without waiting for the TTL.
func TestPodThatStopsHandsOver(t *testing.T) {
	t.Parallel()
	url, _ := try.Redis(t)
	const ttl = 10 * time.Minute // longer than the test waits: a hand-over it is
	a := start(t, try.Open(t, url, &dlock.Options{TTL: ttl}))
	first := try.Receive(t, "a leads", a.terms)
	locksB := try.Open(t, url, &dlock.Options{TTL: ttl})
	b := start(t, locksB)
	try.Await(t, "b stands by", func() bool { return try.Waiters(t, locksB, "scheduler/leader") == 1 })
	if !a.says("/readyz") || !b.says("/readyz") || !a.says("/leading") || b.says("/leading") {
		t.Error("both are to be ready, and a to lead")
	}

	a.sigterm()
	try.Receive(t, "the end of a's term", a.over)
	if a.says("/readyz") {
		t.Error("a pod that stops is ready")
	}
	if len(b.terms) != 0 {
		t.Error("b leads while a works")
	}
	close(a.goOn)
	if err := try.Receive(t, "a ends", a.ended); err != nil {
		t.Errorf("a pod that was asked to stop has failed: %v", err)
	}
	if second := try.Receive(t, "b leads", b.terms); second <= first {
		t.Errorf("token %d after %d", second, first)
	}
	if !b.says("/leading") {
		t.Error("b does not say that it leads")
	}
	close(b.goOn)
	b.sigterm()
	if err := try.Receive(t, "b ends", b.ended); err != nil {
		t.Error(err)
	}
}

// A leader that is cut off from the server knows that it may lead no longer, stays ready,
// and leads again when the server is back.
func TestLeaderWithoutTheServer(t *testing.T) {
	t.Parallel()
	url, redis := try.Redis(t)
	a := start(t, try.Open(t, url, &dlock.Options{TTL: time.Second}))
	close(a.goOn)
	first := try.Receive(t, "a leads", a.terms)
	if err := redis.Pause(); err != nil {
		t.Fatal(err)
	}
	if err := try.Receive(t, "the end of the term", a.over); !errors.Is(err, dlock.ErrLost) {
		t.Errorf("the term ended with %v, want ErrLost", err)
	}
	try.Await(t, "a does not say that it leads", func() bool { return !a.says("/leading") })
	if !a.says("/readyz") {
		t.Error("a pod that stands by is ready")
	}
	if err := redis.Resume(); err != nil {
		t.Fatal(err)
	}
	if second := try.Receive(t, "a leads again", a.terms); second <= first {
		t.Errorf("token %d after %d", second, first)
	}
	a.sigterm()
	if err := try.Receive(t, "a ends", a.ended); err != nil {
		t.Error(err)
	}
}

// The manifests have no field that Kubernetes does not know, and fit the program.
func TestManifests(t *testing.T) {
	text, err := os.ReadFile("deployment.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var secret corev1.Secret
	var deployment appsv1.Deployment
	var budget policyv1.PodDisruptionBudget
	parts := strings.Split(string(text), "\n---\n")
	for i, into := range []any{&secret, &deployment, &budget} {
		if err := yaml.UnmarshalStrict([]byte(parts[i]), into); err != nil {
			t.Error(err)
		}
	}
	template := deployment.Spec.Template
	for _, selector := range []map[string]string{
		deployment.Spec.Selector.MatchLabels, budget.Spec.Selector.MatchLabels,
		template.Spec.TopologySpreadConstraints[0].LabelSelector.MatchLabels,
	} {
		if selector["app"] == "" || selector["app"] != template.Labels["app"] {
			t.Errorf("selector %v does not fit the labels %v", selector, template.Labels)
		}
	}
	container := template.Spec.Containers[0]
	program, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, env := range container.Env {
		if !strings.Contains(string(program), `os.Getenv("`+env.Name+`")`) {
			t.Errorf("the program does not read %s", env.Name)
		}
	}
	key := container.Env[0].ValueFrom.SecretKeyRef
	if key.Name != secret.Name || secret.StringData[key.Key] == "" {
		t.Errorf("there is no secret %s with %s", key.Name, key.Key)
	}
	probe := container.ReadinessProbe.HTTPGet
	if !strings.Contains(string(program), `"GET `+probe.Path+`"`) {
		t.Errorf("the program does not serve %s", probe.Path)
	}
	if port := container.Ports[0]; port.Name != probe.Port.StrVal || !strings.Contains(string(program), fmt.Sprintf(`":%d"`, port.ContainerPort)) {
		t.Errorf("the program does not listen on port %s", probe.Port.String())
	}
	if *deployment.Spec.Replicas < 2 {
		t.Error("one pod alone has nobody to take over")
	}
}
