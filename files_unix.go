//go:build unix

package chaingql

import "syscall"

// fileLimit returns the number of files that the process may have open (RLIMIT_NOFILE).
func fileLimit() uint64 {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return noFileLimit
	}
	return uint64(limit.Cur)
}

// filesLow reports whether the process has so many open files that new sockets and streams must be refused, because the
// last files are for the Backend. It opens a file: the system assigns the lowest free number, so that all files with
// lower numbers are open. Counting them would take a time that grows with their number.
func filesLow() bool {
	limit := fileLimit()
	if limit == noFileLimit {
		return false
	}
	file, err := syscall.Open("/dev/null", syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return err == syscall.EMFILE || err == syscall.ENFILE
	}
	_ = syscall.Close(file)
	return uint64(file) >= limit-fileReserve(limit)
}
