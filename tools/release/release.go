package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	gomodule "golang.org/x/mod/module"
	"golang.org/x/mod/semver"
)

// A release is one version of all public modules.
type release struct {
	repo    string // the folder of the repository
	version string
	dry     bool
	out     io.Writer

	modules []*module // in the order of their requirements
	clone   string    // where the release is made
	env     []string  // of the go command, with the proxy
}

func (r *release) run(ctx context.Context) (err error) {
	if r.repo, err = filepath.Abs(r.repo); err != nil {
		return err
	}
	temp, err := os.MkdirTemp("", "dlock-release-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, removeAll(temp)) }()
	r.clone = filepath.Join(temp, "clone")
	if err := r.checkVersion(); err != nil {
		return err
	}
	if err := r.prepareClone(ctx, temp); err != nil {
		return err
	}
	for _, m := range r.modules {
		if err := m.requireVersion(r.clone, r.version); err != nil {
			return err
		}
	}
	if err := r.layOut(ctx, proxy(filepath.Join(temp, "proxy"))); err != nil {
		return err
	}
	if err := r.tryCommand(ctx, filepath.Join(temp, "bin")); err != nil {
		return err
	}
	if err := r.tryProgram(ctx, filepath.Join(temp, "program")); err != nil {
		return err
	}
	return r.commitAndTag(ctx)
}

// checkVersion refuses a version that is none, one that the go command takes for that of a
// commit and not for a tag, and one that the change log does not have.
func (r *release) checkVersion() error {
	if !semver.IsValid(r.version) || semver.Canonical(r.version) != r.version || semver.Major(r.version) > "v1" ||
		gomodule.IsPseudoVersion(r.version) {
		return fmt.Errorf("%q is no version: want v0.2.0 or v1.2.3-rc.1", r.version)
	}
	if r.dry {
		return nil
	}
	text, err := os.ReadFile(filepath.Join(r.repo, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	section := regexp.MustCompile(`(?m)^## ` + regexp.QuoteMeta(r.version) + `(\s|$)`)
	if !section.Match(text) {
		return fmt.Errorf("CHANGELOG.md has no section %s", r.version)
	}
	return nil
}

// prepareClone clones the repository, and reads its modules.
func (r *release) prepareClone(ctx context.Context, temp string) error {
	if !r.dry {
		changes, err := r.command(ctx, r.repo, "git", "status", "--porcelain")
		if err != nil {
			return err
		}
		if changes != "" {
			return fmt.Errorf("there is something that is not committed:\n%s", changes)
		}
	}
	cache, err := r.command(ctx, r.repo, "go", "env", "GOMODCACHE", "GOPROXY")
	if err != nil {
		return err
	}
	modcache, goproxy, _ := strings.Cut(cache, "\n")
	r.env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod", "GOSUMDB=off",
		"GOMODCACHE="+filepath.Join(temp, "cache"),
		"GOPROXY=file://"+filepath.Join(temp, "proxy")+",file://"+modcache+"/cache/download,"+strings.TrimSpace(goproxy))
	if _, err := r.command(ctx, temp, "git", "clone", "-q", "--no-hardlinks", r.repo, r.clone); err != nil {
		return err
	}
	if r.modules, err = readModules(r.clone); err != nil {
		return err
	}
	return r.checkTags(ctx)
}

// checkTags refuses a version that has been released.
func (r *release) checkTags(ctx context.Context) error {
	there, err := r.command(ctx, r.clone, "git", "tag", "--list")
	if err != nil {
		return err
	}
	for _, m := range r.modules {
		if tag := m.tag(r.version); slices.Contains(strings.Fields(there), tag) {
			return fmt.Errorf("there is a tag %s already", tag)
		}
	}
	return nil
}

// layOut adds the modules to the proxy. A module without replace directives gets its
// go.sum from those before it.
func (r *release) layOut(ctx context.Context, p proxy) error {
	for _, m := range r.modules {
		if !m.isPublic() {
			continue
		}
		if len(m.file.Replace) == 0 && len(m.file.Require) > 0 {
			if _, err := r.command(ctx, filepath.Join(r.clone, m.dir), "go", "mod", "tidy"); err != nil {
				return err
			}
		}
		if err := p.add(r.clone, m, r.version); err != nil {
			return fmt.Errorf("%s: %w", m.path(), err)
		}
	}
	return nil
}

// commitAndTag commits what the release has changed, and makes the tags.
func (r *release) commitAndTag(ctx context.Context) error {
	var tags []string
	for _, m := range r.modules {
		if m.isPublic() {
			tags = append(tags, m.tag(r.version))
		}
	}
	if r.dry {
		fmt.Fprintf(r.out, "would commit, and tag %s\n", strings.Join(tags, " "))
		return nil
	}
	if _, err := r.command(ctx, r.clone, "git", "commit", "-qam", "Release "+r.version); err != nil {
		return err
	}
	for _, tag := range tags {
		if _, err := r.command(ctx, r.clone, "git", "tag", "-am", tag, tag); err != nil {
			return err
		}
	}
	// The tags come last: none stays behind if a commit has been made meanwhile.
	if _, err := r.command(ctx, r.repo, "git", "pull", "-q", "--ff-only", "--no-tags", r.clone, "HEAD"); err != nil {
		return err
	}
	if _, err := r.command(ctx, r.repo, "git", "fetch", "-q", "--atomic", r.clone, "refs/tags/*:refs/tags/*"); err != nil {
		return err
	}
	r.sayHowToPublish(tags)
	return nil
}

// sayHowToPublish has the tag of the command line pushed by itself: GitHub starts no
// workflow when more than three tags come at once, and the one that builds it needs the
// other modules.
func (r *release) sayHowToPublish(tags []string) {
	isCommand := func(tag string) bool { return strings.HasPrefix(tag, "cmd/") }
	libraries := slices.DeleteFunc(slices.Clone(tags), isCommand)
	commands := slices.DeleteFunc(slices.Clone(tags), func(tag string) bool { return !isCommand(tag) })
	fmt.Fprintf(r.out, "To publish it:\n\n\tgit push --atomic origin HEAD %s\n\tgit push origin %s\n",
		strings.Join(libraries, " "), strings.Join(commands, " "))
}
