//go:build linux

package file

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzContent has a file say anything. What is read is what was written, or nothing, or
// the file is none of ours.
func FuzzContent(f *testing.F) {
	for _, text := range []string{
		"", "\x00\x00", "dlock 1 ", fmt.Sprintf(contentFormat, 5, 7), fmt.Sprintf(contentFormat, uint64(1<<63), -1), "dlock 1 000", "dlock 2 5 7\n",
	} {
		f.Add([]byte(text))
	}
	path := filepath.Join(f.TempDir(), "x.lock")
	f.Fuzz(func(t *testing.T, text []byte) {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		l := &lockFile{dir: &directory{path: filepath.Dir(path)}, name: "x.lock", file: file}
		c, err := l.read()
		if err != nil || c == (content{}) {
			return
		}
		again := content{}
		if written := fmt.Sprintf(contentFormat, c.token, c.skipped); !again.parse(written) || again != c {
			t.Errorf("%q is read as %+v, and that as %+v", text, c, again)
		}
	})
}

// FuzzFileNames has names in a directory that folds case, and in one that does not.
func FuzzFileNames(f *testing.F) {
	f.Add("a", "A")
	f.Add("a/b", "a%2Fb")
	f.Add(strings.Repeat("x", 300), strings.Repeat("x", 301))
	f.Fuzz(func(t *testing.T, a, b string) {
		if a == "" || b == "" {
			return // no lock has that name
		}
		for _, folds := range []bool{false, true} {
			d := &directory{foldsCase: folds}
			x, y := d.fileName(a), d.fileName(b)
			if folds {
				x, y = strings.ToLower(x), strings.ToLower(y)
			}
			if (x == y) != (a == b) {
				t.Errorf("%q and %q have the files %q and %q", a, b, x, y)
			}
			if strings.ContainsAny(x, "/\x00") || strings.HasPrefix(x, ".") || len(x) > 255 {
				t.Errorf("%q has the file %q", a, x)
			}
		}
	})
}
