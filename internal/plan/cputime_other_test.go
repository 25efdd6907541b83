//go:build !unix

package plan

import "time"

var began = time.Now()

// processorTime returns the time since the test binary started, because the system has no getrusage.
func processorTime() time.Duration { return time.Since(began) }
