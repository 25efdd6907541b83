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

// worstCase is the memory in bytes that docs/limits.md states for the default limits.
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

// confine has this process die when it asks the system for more memory than the
// worst case, whether or not it uses that.
func confine() error {
	most, err := worstCase()
	if err != nil {
		return err
	}
	return syscall.Setrlimit(syscall.RLIMIT_DATA, &syscall.Rlimit{Cur: most, Max: most})
}
