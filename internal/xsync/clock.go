package xsync

import (
	"math"
	"time"
)

// start is the moment from which this package counts time. time.Since(start) takes
// half as long as time.Now: see BenchmarkDeadline.
var start = time.Now()

// never is later than any deadline.
const never = time.Duration(math.MaxInt64)

// Clock returns the time since the process started, plus d.
func Clock(d time.Duration) time.Duration { return After(time.Since(start), d) }

// After returns the sum of a Clock time and d. It limits d to 146 years so that the sum
// does not overflow.
func After(now, d time.Duration) time.Duration { return now + min(d, never/2) }

// Time returns the time at which the Clock shows d, for use as a deadline. Do not display
// it: its wall clock time is wrong if the system clock was changed after the process
// started.
func Time(d time.Duration) time.Time { return start.Add(d) }
