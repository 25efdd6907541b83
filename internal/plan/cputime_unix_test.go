//go:build unix

package plan

import (
	"syscall"
	"time"
)

// processorTime returns the processor time that this process has used. Other processes do not affect it.
func processorTime() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		panic(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
