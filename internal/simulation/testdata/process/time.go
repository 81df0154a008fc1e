package time

import "runtime"

// inProcess returns f as it runs in the process of the caller.
func inProcess(f func()) func() {
	p := runtime.ProcessOf()
	if p == nil {
		return f
	}
	return func() {
		runtime.EnterProcess(p)
		runtime.StandStill()
		f()
	}
}
