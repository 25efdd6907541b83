//go:build !unix

package guard

import "math"

// FileLimit returns math.MaxUint64 twice, because the system has no known limit of open files.
func FileLimit() (limit, usable uint64) { return math.MaxUint64, math.MaxUint64 }

// FilesLow returns false.
func FilesLow() bool { return false }
