//go:build !unix

package plan

import "time"

var began = time.Now()

// processorTime returns the elapsed time on systems without getrusage.
func processorTime() time.Duration { return time.Since(began) }
