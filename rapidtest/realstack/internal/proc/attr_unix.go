//go:build unix && !linux

package proc

import "syscall"

// Attributes puts a child into a process group of its own, so that a ctrl-C
// meant for this program does not reach it first. Only Linux can tie a child's
// life to that of its parent.
func Attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
