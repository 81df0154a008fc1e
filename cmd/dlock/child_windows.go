package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
	"unsafe"

	"github.com/spf13/cobra"
	"golang.org/x/sys/windows"
)

// A processGroup is a job object, which holds the command and all that it starts. Windows ends
// them when the last handle of the job is closed, and so when dlock is gone, however it
// has ended.
type processGroup struct {
	job     windows.Handle
	command *uint32 // the number of the command's process, and of its console group
}

func newProcessGroup() (processGroup, error) {
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return processGroup{}, fmt.Errorf("create a job object: %w", err)
	}
	limits := windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION{}
	limits.BasicLimitInformation.LimitFlags = windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE
	_, err = windows.SetInformationJobObject(job, windows.JobObjectExtendedLimitInformation,
		uintptr(unsafe.Pointer(&limits)), uint32(unsafe.Sizeof(limits)))
	if err != nil {
		_ = windows.CloseHandle(job)
		return processGroup{}, fmt.Errorf("limit a job object: %w", err)
	}
	return processGroup{job: job, command: new(uint32)}, nil
}

// terminate asks the command to end, as Ctrl-Break does. A program without a console
// does not hear of it, and is killed when its time to clean up is over.
func (g processGroup) terminate() {
	_ = windows.GenerateConsoleCtrlEvent(windows.CTRL_BREAK_EVENT, *g.command)
}

func (g processGroup) kill() {
	_ = windows.TerminateJobObject(g.job, exitSignal+uint32(syscall.SIGKILL))
}

// dismiss spares what the command has left behind.
func (g processGroup) dismiss() {
	var none windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION
	_, _ = windows.SetInformationJobObject(g.job, windows.JobObjectExtendedLimitInformation,
		uintptr(unsafe.Pointer(&none)), uint32(unsafe.Sizeof(none)))
	_ = windows.CloseHandle(g.job)
}

// run starts the command suspended, so that it can start nothing before it is in the job.
func (c *child) run(grace time.Duration) error {
	c.cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: windows.CREATE_SUSPENDED | windows.CREATE_NEW_PROCESS_GROUP}
	if err := c.cmd.Start(); err != nil {
		return cannotRun(c.cmd.Args[0], err)
	}
	*c.group.command = uint32(c.cmd.Process.Pid)
	if err := c.group.adopt(*c.group.command); err != nil {
		_ = c.cmd.Process.Kill()
		_ = c.cmd.Wait()
		return cannotRun(c.cmd.Args[0], err)
	}
	go c.watch()
	return c.attend(grace)
}

// adopt puts a suspended process into the job and has it go on.
func (g processGroup) adopt(pid uint32) error {
	process, err := windows.OpenProcess(windows.PROCESS_SET_QUOTA|windows.PROCESS_TERMINATE, false, pid)
	if err != nil {
		return fmt.Errorf("open the process: %w", err)
	}
	defer windows.CloseHandle(process)
	if err := windows.AssignProcessToJobObject(g.job, process); err != nil {
		return fmt.Errorf("put the process into its job: %w", err)
	}
	return resumeThreads(pid)
}

// resumeThreads continues a process that was created suspended: its one thread.
func resumeThreads(pid uint32) error {
	all, err := windows.CreateToolhelp32Snapshot(windows.TH32CS_SNAPTHREAD, 0)
	if err != nil {
		return fmt.Errorf("list threads: %w", err)
	}
	defer windows.CloseHandle(all)
	entry := windows.ThreadEntry32{Size: uint32(unsafe.Sizeof(windows.ThreadEntry32{}))}
	resumed := false
	for err := windows.Thread32First(all, &entry); err == nil; err = windows.Thread32Next(all, &entry) {
		if entry.OwnerProcessID != pid {
			continue
		}
		thread, err := windows.OpenThread(windows.THREAD_SUSPEND_RESUME, false, entry.ThreadID)
		if err != nil {
			return fmt.Errorf("open the thread: %w", err)
		}
		_, err = windows.ResumeThread(thread)
		_ = windows.CloseHandle(thread)
		if err != nil {
			return fmt.Errorf("resume the thread: %w", err)
		}
		resumed = true
	}
	if !resumed { // the command would stand still for ever, and keep the lock
		return errors.New("its thread is not in the list of threads")
	}
	return nil
}

// watch waits for the end of the command.
func (c *child) watch() {
	_ = c.cmd.Wait() // the state says it
	c.changes <- change{status: c.cmd.ProcessState.Sys().(syscall.WaitStatus)}
}

// stopped is never called: nothing stops a process here.
func (c *child) stopped(syscall.Signal) {}

// forward passes on that dlock is asked to end.
func (c *child) forward(syscall.Signal) { c.group.terminate() }

// passedOn is empty: there are no signals but those that ask a process to end.
var passedOn []os.Signal

// setOwnGroup has the command be the first of a console group: Ctrl-C does not reach it.
func setOwnGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP}
}

// systemCommands are those that dlock starts itself by on this system.
func systemCommands(stdio) []*cobra.Command { return nil }
