package bench

import (
	"os/exec"
	"syscall"
)

// attach makes a command end with the thread that starts it, and keeps the terminal's signals from it.
func attach(command *exec.Cmd) {
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
