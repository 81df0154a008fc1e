package slowsync

import "runtime"

func init() {
	processOf, enter, stopProcess = runtime.ProcessOf, runtime.EnterProcess, runtime.StopProcess
	proceed, isStopped, standStill = runtime.ContinueProcess, runtime.IsStopped, runtime.StandStill
}
