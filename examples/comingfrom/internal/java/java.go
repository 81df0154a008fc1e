// Package java runs the programs of jvm/Before.java and jvm/After.java, for tests with the real libraries.
package java

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"

	"github.com/dlock-go/dlock/examples/comingfrom/internal/changeover"
)

const folder = "../jvm" // from the packages that test

var build = sync.OnceValue(func() error {
	out, err := exec.Command("mvn", "-q", "-B", "-f", folder+"/pom.xml", "package").CombinedOutput()
	if err != nil {
		return fmt.Errorf("mvn: %w: %s", err, out)
	}
	return nil
})

func command(ctx context.Context, class string, args ...string) (*exec.Cmd, error) {
	if err := build(); err != nil {
		return nil, err
	}
	classPath := folder + "/target/classes:" + folder + "/target/dependency/*"
	c := exec.CommandContext(ctx, "java", append([]string{"-Duser.timezone=UTC", "-cp", classPath, class}, args...)...)
	c.Stderr = os.Stderr
	return c, nil
}

// Claims checks what the page about that library says of it.
func Claims(ctx context.Context, kind, addr string) error {
	c, err := command(ctx, "Claims", kind, addr)
	if err != nil {
		return err
	}
	out, err := c.Output()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// Before is a process with the program before. It ends with ctx.
func Before(ctx context.Context, kind, addr string) (changeover.Program, error) {
	c, err := command(ctx, "Hold", kind, addr)
	if err != nil {
		return nil, err
	}
	return start(c)
}

// After is a process with the program after, which holds its locks at that URL by the
// command line. It ends with ctx.
func After(ctx context.Context, dir, url string) (changeover.Program, error) {
	out, err := exec.CommandContext(ctx, "go", "build", "-o", dir, "github.com/dlock-go/dlock/cmd/dlock").CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("go build: %w: %s", err, out)
	}
	c, err := command(ctx, "Hold", "dlock", url)
	if err != nil {
		return nil, err
	}
	c.Env = append(os.Environ(), "DLOCK_URL="+url, "PATH="+dir+":"+os.Getenv("PATH"))
	return start(c)
}

func start(c *exec.Cmd) (changeover.Program, error) {
	in, err := c.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.Start(); err != nil {
		return nil, err
	}
	h := &holder{in: in, out: bufio.NewReader(out)}
	return h.run, h.expect("ready")
}

// A holder speaks with Hold.java.
type holder struct {
	in  io.Writer
	out *bufio.Reader
}

func (h *holder) run(ctx context.Context, name string, work func(context.Context) error) error {
	if err := h.say(name, "held"); err != nil {
		return err
	}
	err := work(ctx)
	if said := h.say("enough", "free"); said != nil {
		return said
	}
	return err
}

func (h *holder) say(line, answer string) error {
	if _, err := fmt.Fprintln(h.in, line); err != nil {
		return err
	}
	return h.expect(answer)
}

func (h *holder) expect(answer string) error {
	line, err := h.out.ReadString('\n')
	if err == nil && strings.TrimSpace(line) != answer {
		err = fmt.Errorf("the JVM says %q, not %q", line, answer)
	}
	return err
}
