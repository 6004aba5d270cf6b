package proc

import "syscall"

// Attributes puts a child into a process group of its own, so that a ctrl-C
// meant for this program does not reach it first, and has the kernel kill it
// when this program dies.
func Attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
