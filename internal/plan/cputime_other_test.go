//go:build !unix

package plan

import "time"

var began = time.Now()

// processorTime is the time of the clock if the system has no better one.
func processorTime() time.Duration { return time.Since(began) }
