package xsync

import (
	"sync/atomic"
	"time"
)

// A Usage is the time that work for one client has taken lately. It falls by a thousandth of the time that passes: a
// client that needs more than that soon has a high Usage, even if it ends its work again and again to start anew. The
// zero value is a Usage of 0. A Usage is safe for concurrent use.
type Usage struct {
	until atomic.Int64 // the Clock time at which the Usage will have fallen to 0; 0 before the first Add
}

const (
	usageFall = 1000        // how much slower a Usage falls than time passes
	maxUsage  = time.Second // so that it is 0 after 17 minutes without work
)

// The levels of a Usage. For a client that resumes, the bounds are enough for about one and ten thousand blocks.
const (
	UsageLevels = 3

	MuchUsage = 10 * time.Millisecond  // the highest Usage of level 0
	MoreUsage = 100 * time.Millisecond // and of level 1
)

// Level returns the level of the Usage, which is less than UsageLevels. Clients of a level should not wait for those of
// a higher one.
func (u *Usage) Level() int {
	switch used := u.Time(); {
	case used > MoreUsage:
		return 2
	case used > MuchUsage:
		return 1
	}
	return 0
}

// Add adds the time that work has taken.
func (u *Usage) Add(d time.Duration) {
	for {
		old, used := u.until.Load(), u.Time()
		until := Clock(usageFall * min(used+d, maxUsage))
		if u.until.CompareAndSwap(old, int64(until)) {
			return
		}
	}
}

// Time returns the Usage, which is at most a second.
func (u *Usage) Time() time.Duration {
	until := time.Duration(u.until.Load())
	if until == 0 {
		return 0
	}
	return max(0, until-Clock(0)) / usageFall
}
