package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// version is that of the module that dlock was built from, with the commit if it
// was built in a checkout.
func version() string {
	v := "(devel)"
	info, ok := debug.ReadBuildInfo()
	if ok && info.Main.Version != "" {
		v = info.Main.Version
	}
	if ok && v == "(devel)" {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				v += " " + s.Value
			}
		}
	}
	return fmt.Sprintf("%s, %s, %s/%s", v, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
