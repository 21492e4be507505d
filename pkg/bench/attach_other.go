//go:build !linux

package bench

import (
	"os/exec"
	"syscall"
)

// attach keeps the terminal's signals from a command.
func attach(command *exec.Cmd) { command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
