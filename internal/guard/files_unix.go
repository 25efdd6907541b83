//go:build unix

package guard

import (
	"math"
	"syscall"
)

// FileLimit returns how many files the process may have open (RLIMIT_NOFILE), and how many of them clients may use. The
// others are reserved for the Backend. Otherwise clients could take all files, and a Backend that has lost its
// connection could never connect again. If the limit is not known, both numbers are math.MaxUint64.
func FileLimit() (limit, usable uint64) {
	var r syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r) != nil || uint64(r.Cur) == math.MaxUint64 {
		return math.MaxUint64, math.MaxUint64
	}
	limit = uint64(r.Cur)
	return limit, limit - min(64, limit/4)
}

// FilesLow reports whether the process has so many open files that new connections must be refused, because the last
// files are for the Backend. It opens a file: the system assigns the lowest free number, so that all files with lower
// numbers are open. Counting them would take a time that grows with their number.
func FilesLow() bool {
	_, usable := FileLimit()
	if usable == math.MaxUint64 {
		return false
	}
	file, err := syscall.Open("/dev/null", syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return err == syscall.EMFILE || err == syscall.ENFILE
	}
	_ = syscall.Close(file)
	return uint64(file) >= usable
}
