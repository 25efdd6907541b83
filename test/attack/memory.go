package attack

import (
	"errors"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
)

var worst = regexp.MustCompile(`clients can make a Handler keep at most ([\d,]+) MiB`)

// worstCase reads the worst-case memory of the default limits, in bytes, from docs/limits.md.
func worstCase() (uint64, error) {
	text, err := os.ReadFile("../../docs/limits.md")
	if err != nil {
		return 0, err
	}
	found := worst.FindSubmatch(text)
	if found == nil {
		return 0, errors.New("attack: docs/limits.md does not state the worst case")
	}
	n, err := strconv.ParseUint(strings.ReplaceAll(string(found[1]), ",", ""), 10, 32)
	return n << 20, err
}

// confine sets RLIMIT_DATA to the worst case: this process dies if it requests more memory, used or
// not.
func confine() error {
	most, err := worstCase()
	if err != nil {
		return err
	}
	return syscall.Setrlimit(syscall.RLIMIT_DATA, &syscall.Rlimit{Cur: most, Max: most})
}
