package bench

import "golang.org/x/sys/unix"

// sharpen makes this thread's naps end within microseconds; the kernel's default slack is 50.
func sharpen() { _ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0) }

// nap sleeps in the kernel, because time.Sleep is only as fine as the runtime's poller: a millisecond. A signal ends it early.
func nap(nanoseconds int64) {
	left := unix.NsecToTimespec(nanoseconds)
	_ = unix.Nanosleep(&left, nil)
}
