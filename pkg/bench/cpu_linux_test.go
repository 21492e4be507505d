package bench

import (
	"os"
	"syscall"
	"testing"
	"time"
)

func TestParseStat(t *testing.T) {
	const rest = " S 1 2 3 4 5 6 7 8 9 10 250 50 1 1 20 0 9 0 100 0 0"
	for _, name := range []string{"weir", "a b", "x) S 1 (y", "(", ""} {
		got, err := parseStat([]byte("42 (" + name + ")" + rest))
		if err != nil || got != 3*time.Second {
			t.Errorf("process %q used %v (%v), want 3s", name, got, err)
		}
	}
	for _, text := range []string{"", "42 (weir) S 1 2", "42 (weir) S 1 2 3 4 5 6 7 8 9 10 x 50 1"} {
		if got, err := parseStat([]byte(text)); err == nil {
			t.Errorf("%q is read as %v", text, got)
		}
	}
}

// Both ways to read a process's time lie between what getrusage says before and after, give or take a tick.
func TestProcessTime(t *testing.T) {
	burnt := func() time.Duration {
		var usage syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
			t.Fatal(err)
		}
		return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	}
	for start := burnt(); burnt() < start+100*time.Millisecond; {
	}
	for name, read := range map[string]func(int) (time.Duration, error){"clock": processTime, "stat": statTime} {
		before := burnt()
		got, err := read(os.Getpid())
		after := burnt()
		const tick = 2 * time.Second / ticksPerSecond
		if err != nil || got < before-tick || got > after+tick {
			t.Errorf("%s: %v (%v), want %v to %v", name, got, err, before, after)
		}
	}
}

func TestProcessTimeOfNobody(t *testing.T) {
	const nobody = 1<<22 + 1 // above the kernel's greatest process ID
	if used, err := processTime(nobody); err == nil {
		t.Errorf("a process that is not there has used %v", used)
	}
	if _, err := openMeters([]Process{{"redis", nobody}}); err == nil {
		t.Error("a process that is not there can be measured")
	}
}
