package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// requirement is one of a module of this repository.
var requirement = regexp.MustCompile(`(?m)^\s*(?:require )?(github\.com/dlock-go/dlock\S*) (v\S+)`)

// TestRelease makes a release of a clone.
func TestRelease(t *testing.T) {
	for _, who := range []string{"AUTHOR", "COMMITTER"} {
		t.Setenv("GIT_"+who+"_NAME", "test")
		t.Setenv("GIT_"+who+"_EMAIL", "test@example.com")
	}
	repo := filepath.Join(t.TempDir(), "repo")
	git(t, ".", "clone", "-q", "../..", repo)
	const version = "v0.0.1-test"
	var out bytes.Buffer
	r := release{repo: repo, version: version, out: &out}
	if err := r.run(t.Context()); err == nil || !strings.Contains(err.Error(), "CHANGELOG.md") {
		t.Fatalf("no entry in the change log: %v", err)
	}
	log := filepath.Join(repo, "CHANGELOG.md")
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(log, append(text, "\n## "+version+"\n"...), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := r.run(t.Context()); err == nil || !strings.Contains(err.Error(), "not committed") {
		t.Fatalf("a change that is not committed: %v", err)
	}
	git(t, repo, "commit", "-qam", "A change log")
	if err := r.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if want := "dlock version " + version; !strings.Contains(out.String(), want) {
		t.Errorf("%q is missing from\n%s", want, out.String())
	}
	t.Log(out.String())
	got := strings.Fields(git(t, repo, "tag", "--points-at", "HEAD"))
	for _, want := range []string{version, "backend/redis/" + version, "cmd/dlock/" + version, "conformance/" + version} {
		if !slices.Contains(got, want) {
			t.Errorf("there is no tag %s", want)
		}
	}
	for file := range strings.FieldsSeq(git(t, repo, "ls-files", "go.mod", "*/go.mod")) {
		for _, required := range requirement.FindAllStringSubmatch(git(t, repo, "show", "HEAD:"+file), -1) {
			if required[2] != version {
				t.Errorf("%s requires %s %s: what it requires beside wants the new one", file, required[1], required[2])
			}
		}
	}
	if err := r.run(t.Context()); err == nil || !strings.Contains(err.Error(), "already") {
		t.Errorf("a version that has been released: %v", err)
	}
	checkSums(t, repo, version)
	if pushed := strings.Split(out.String(), "git push "); len(pushed) != 3 ||
		strings.Contains(pushed[1], "cmd/dlock/") || strings.TrimSpace(pushed[2]) != "origin cmd/dlock/"+version {
		t.Errorf("the tag of cmd/dlock is not pushed alone and last:\n%s", out.String())
	}
}

// checkSums has the go command fetch the modules from their tags, as a module proxy does,
// and compares their sums with those in go.sum of cmd/dlock.
func checkSums(t *testing.T, repo, version string) {
	t.Helper()
	sums := git(t, repo, "show", "HEAD:cmd/dlock/go.sum")
	for _, path := range []string{libraryPath, libraryPath + "/backend/redis", libraryPath + "/backend/all"} {
		c := exec.CommandContext(t.Context(), "go", "mod", "download", "-modcacherw", "-json", path+"@"+version)
		c.Dir = t.TempDir()
		c.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod", "GOPROXY=direct", "GOSUMDB=off", "GOMODCACHE="+filepath.Join(c.Dir, "cache"),
			"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=url."+repo+".insteadOf", "GIT_CONFIG_VALUE_0=https://"+libraryPath)
		said, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", path, err, said)
		}
		var got struct{ Sum, GoModSum string }
		if err := json.Unmarshal(said, &got); err != nil {
			t.Fatalf("%v\n%s", err, said)
		}
		for _, line := range []string{path + " " + version + " " + got.Sum, path + " " + version + "/go.mod " + got.GoModSum} {
			if !strings.Contains(sums, line+"\n") {
				t.Errorf("go.sum of cmd/dlock has no %q", line)
			}
		}
	}
}

// TestPublicModules names those that a release tags: others have only tests, programs to
// read, or what nobody may depend on.
func TestPublicModules(t *testing.T) {
	all, err := readModules("../..")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range all {
		if m.isPublic() {
			got = append(got, m.dir)
		}
	}
	slices.Sort(got)
	want := []string{".", "backend/all", "backend/etcd", "backend/pg", "backend/redis", "backend/zk", "cmd/dlock", "conformance",
		"contrib/certmagiclock", "contrib/gocronlock", "otel"}
	if !slices.Equal(got, want) {
		t.Errorf("a release has %q, want %q", got, want)
	}
}

// TestDryRun has a release that is only tried say what it would do, and do nothing.
func TestDryRun(t *testing.T) {
	repo := filepath.Join(t.TempDir(), "repo")
	git(t, ".", "clone", "-q", "../..", repo)
	all, err := readModules(repo)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	r := release{repo: repo, clone: repo, version: "v0.0.1-dry", dry: true, modules: all, out: &out}
	before := git(t, repo, "show-ref")
	if err := r.commitAndTag(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "would commit, and tag v0.0.1-dry ") {
		t.Error(out.String())
	}
	if after := git(t, repo, "show-ref"); after != before {
		t.Errorf("references are\n%s\nand were\n%s", after, before)
	}
}

func TestBadVersions(t *testing.T) {
	for _, version := range []string{"", "1.2.3", "v1", "v1.2", "v2.0.0", "v1.2.3+meta", "v0.0.0-20260101000000-0123456789ab", "latest"} {
		r := release{version: version, dry: true}
		if err := r.checkVersion(); err == nil {
			t.Errorf("%q is taken for a version", version)
		}
	}
}

// TestOrder has each module come after those that it requires.
func TestOrder(t *testing.T) {
	all, err := readModules("../..")
	if err != nil {
		t.Fatal(err)
	}
	var seen []string
	for _, m := range all {
		for _, r := range m.file.Require {
			if r.Mod.Path == libraryPath || strings.HasPrefix(r.Mod.Path, libraryPath+"/") {
				if !slices.Contains(seen, r.Mod.Path) {
					t.Errorf("%s comes before %s, which it requires", m.path(), r.Mod.Path)
				}
			}
		}
		seen = append(seen, m.path())
	}
}

func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	c := exec.CommandContext(context.WithoutCancel(t.Context()), "git", args...)
	c.Dir = dir
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// TestSectionOfAnotherVersion has a change log with a candidate alone, whose name begins
// as that of the release does.
func TestSectionOfAnotherVersion(t *testing.T) {
	repo := t.TempDir()
	log := "# Change log\n\n## v0.1.0-rc.10 (soon)\n"
	if err := os.WriteFile(filepath.Join(repo, "CHANGELOG.md"), []byte(log), 0o644); err != nil {
		t.Fatal(err)
	}
	for version, want := range map[string]bool{"v0.1.0-rc.10": true, "v0.1.0-rc.1": false, "v0.1.0": false} {
		r := release{repo: repo, version: version}
		if err := r.checkVersion(); (err == nil) != want {
			t.Errorf("%s: %v", version, err)
		}
	}
}
