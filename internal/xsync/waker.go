package xsync

// A Waker is woken when something may have happened. Wake must not block.
type Waker interface{ Wake() }

// A WakeFunc is a function that implements [Waker].
type WakeFunc func()

// Wake calls f.
func (f WakeFunc) Wake() { f() }
