package xsync

import (
	"math"
	"time"
)

// start is the moment from which this package counts time. To read how long ago a
// moment was takes half as long as to read the current time: BenchmarkDeadline.
var start = time.Now()

// never is later than any deadline.
const never = time.Duration(math.MaxInt64)

// Clock returns the time since the process started, plus d. If d is centuries, it
// adds only one of them, so that the sum does not overflow.
func Clock(d time.Duration) time.Duration { return time.Since(start) + min(d, never/2) }

// Deadline returns the moment at which d will have passed, for use as a deadline. Do
// not display it: its wall clock is wrong if the clock was set since the process
// started.
func Deadline(d time.Duration) time.Time { return start.Add(Clock(d)) }
