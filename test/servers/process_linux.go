package servers

import "syscall"

// dieWithParent makes the kernel kill a child when the test binary dies without running its cleanups.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
