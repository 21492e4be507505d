package bench

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// processTime asks for the process's clock, which counts nanoseconds. Where there is none, /proc counts ticks.
func processTime(pid int) (time.Duration, error) {
	var used unix.Timespec
	switch err := unix.ClockGettime(processClock(pid), &used); {
	case err == nil:
		return time.Duration(used.Nano()), nil
	case errors.Is(err, unix.ESRCH), !exists(pid):
		return 0, errors.New("there is no such process")
	}
	return statTime(pid)
}

// processClock is the number of the clock of a process's processor time, as clock_getcpuclockid(3) makes it.
func processClock(pid int) int32 {
	const schedulerTime = 2
	return int32(^pid<<3 | schedulerTime) //nolint:gosec // process IDs have 22 bits at most
}

func exists(pid int) bool {
	_, err := os.Stat("/proc/" + strconv.Itoa(pid))
	return err == nil
}

// ticksPerSecond is USER_HZ, which is 100 on every architecture that Go runs on.
const ticksPerSecond = 100

// statTime reads utime and stime from /proc/PID/stat: proc_pid_stat(5).
func statTime(pid int) (time.Duration, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, err
	}
	return parseStat(text)
}

func parseStat(text []byte) (time.Duration, error) {
	// The second field is the name in parentheses, and the name may hold anything: fields are counted from its end.
	const utime, stime = 14 - 3, 15 - 3
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) <= stime {
		return 0, fmt.Errorf("/proc/PID/stat has %d fields after the name", len(fields))
	}
	user, err1 := strconv.ParseInt(string(fields[utime]), 10, 64)
	system, err2 := strconv.ParseInt(string(fields[stime]), 10, 64)
	if err := errors.Join(err1, err2); err != nil {
		return 0, err
	}
	return time.Duration(user+system) * (time.Second / ticksPerSecond), nil
}
