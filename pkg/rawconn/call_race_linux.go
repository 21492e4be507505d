//go:build race && linux && (amd64 || arm64)

package rawconn

import (
	"errors"
	"syscall"
)

// The race detector learns from package syscall that what was done before a write is known after its read.

func read(fd uintptr, p []byte) (int, syscall.Errno) {
	n, err := syscall.Read(int(fd), p) //nolint:gosec // descriptors are small
	return n, number(err)
}

func write(fd uintptr, p []byte) (int, syscall.Errno) {
	n, err := syscall.Write(int(fd), p) //nolint:gosec // descriptors are small
	return n, number(err)
}

func number(err error) syscall.Errno {
	errno, _ := errors.AsType[syscall.Errno](err)
	return errno
}
