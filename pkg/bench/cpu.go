package bench

import (
	"fmt"
	"os"
	"time"
)

// Process is a running process whose processor time is measured.
type Process struct {
	Name string
	PID  int
}

// generatorName stands for this process among those measured.
const generatorName = "generator"

// meters reads the processor time of processes and of this one.
type meters struct{ processes []Process }

// openMeters checks that the processes are there.
func openMeters(processes []Process) (meters, error) {
	m := meters{append([]Process{{generatorName, os.Getpid()}}, processes...)}
	_, err := m.read()
	return m, err
}

// read returns the processor time that each process has used since it started: all threads, in user and kernel mode, without
// its children.
func (m meters) read() ([]time.Duration, error) {
	times := make([]time.Duration, len(m.processes))
	for i, process := range m.processes {
		used, err := processTime(process.PID)
		if err != nil {
			return nil, fmt.Errorf("processor time of %s (process %d): %w", process.Name, process.PID, err)
		}
		times[i] = used
	}
	return times, nil
}

// since is what each process has used between two readings, by name.
func (m meters) since(before, after []time.Duration) map[string]time.Duration {
	used := map[string]time.Duration{}
	for i, process := range m.processes {
		used[process.Name] += after[i] - before[i]
	}
	return used
}
