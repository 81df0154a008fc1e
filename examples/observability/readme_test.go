package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestReadme has the README lead to files, ports, panels and alerts that there are.
func TestReadme(t *testing.T) {
	readme := read(t, "README.md")
	compose, program := read(t, "docker-compose.yml"), read(t, "main.go")
	dashboard, alerts := read(t, "../../otel/dashboard.json"), read(t, "../../otel/alerts.yml")
	for what, of := range map[string]struct {
		pattern string
		exists  func(string) bool
	}{
		"file": {`\]\(([^)]+)\)`, exists},
		"port": {`http://localhost:(\d+)`, func(port string) bool {
			return strings.Contains(compose, `"127.0.0.1:`+port+":"+port+`"`) || strings.Contains(program, `"localhost:`+port+`"`)
		}},
		"panel":   {`\*\*([^*]+)\*\*`, func(title string) bool { return strings.Contains(dashboard, `"title": "`+title+`"`) }},
		"alert":   {"`(Dlock\\w+)`", func(name string) bool { return strings.Contains(alerts, "alert: "+name+"\n") }},
		"service": {`docker compose (?:pause|unpause|logs) (\w+)`, func(name string) bool { return strings.Contains(compose, "\n  "+name+":\n") }},
	} {
		found := regexp.MustCompile(of.pattern).FindAllStringSubmatch(readme, -1)
		if len(found) == 0 {
			t.Errorf("the README names no %s", what)
		}
		for _, f := range found {
			if !of.exists(f[1]) {
				t.Errorf("the README names the %s %s, which there is not", what, f[1])
			}
		}
	}
	for _, page := range []string{"../README.md", "../../otel/README.md"} {
		if !strings.Contains(read(t, page), "observability)") {
			t.Errorf("%s does not lead here", page)
		}
	}
}

// TestComposeMountsWhatThereIs has each file that a container is given exist, and Prometheus
// read the port at which the program serves.
func TestComposeMountsWhatThereIs(t *testing.T) {
	compose := read(t, "docker-compose.yml")
	mounts := regexp.MustCompile(`(?m)^ *- (\.[^:]*):/`).FindAllStringSubmatch(compose, -1)
	if len(mounts) < 5 {
		t.Errorf("%d files are mounted", len(mounts))
	}
	for _, m := range mounts {
		if !exists(m[1]) {
			t.Errorf("there is no %s", m[1])
		}
	}
	listens := regexp.MustCompile(`-listen=[\d.]+:(\d+)`).FindStringSubmatch(compose)
	if listens == nil || !strings.Contains(read(t, "prometheus.yml"), "names: [workers], type: A, port: "+listens[1]) {
		t.Errorf("Prometheus does not read the port of %q", listens)
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func exists(name string) bool {
	_, err := os.Stat(filepath.FromSlash(name))
	return err == nil
}
