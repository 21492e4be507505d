package main

import "syscall"

// attributes makes the kernel end a server whose starter has died, and keeps a terminal's Ctrl-C from it: the starter ends its
// servers itself, in order.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
