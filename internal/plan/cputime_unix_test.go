//go:build unix

package plan

import (
	"syscall"
	"time"
)

// processorTime is what the process has used so far. What else the machine does
// has no part in it.
func processorTime() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		panic(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
