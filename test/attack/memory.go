package attack

import (
	"errors"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
)

var statedWorstCase = regexp.MustCompile(`clients can make a Handler keep at most ([\d,]+) MiB`)

// worstCase reads the worst-case memory of the default limits, in bytes, from docs/limits.md.
func worstCase() (uint64, error) {
	text, err := os.ReadFile("../../docs/limits.md")
	if err != nil {
		return 0, err
	}
	found := statedWorstCase.FindSubmatch(text)
	if found == nil {
		return 0, errors.New("docs/limits.md does not state the worst-case memory")
	}
	n, err := strconv.ParseUint(strings.ReplaceAll(string(found[1]), ",", ""), 10, 32)
	return n << 20, err
}

// limitMemory sets RLIMIT_DATA of this process to the documented worst case. If the process then
// requests more memory from the kernel, the Go runtime ends it.
func limitMemory() error {
	limit, err := worstCase()
	if err != nil {
		return err
	}
	return syscall.Setrlimit(syscall.RLIMIT_DATA, &syscall.Rlimit{Cur: limit, Max: limit})
}
