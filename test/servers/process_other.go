//go:build !linux

package servers

import "syscall"

// dieWithParent does nothing here: only Linux offers it. A test binary that is killed leaves its children behind.
func dieWithParent() *syscall.SysProcAttr { return nil }
