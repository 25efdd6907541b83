package attack

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/chaingql/chaingql"
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

// A size is a row of the table of sizes in docs/operations.md.
type size struct {
	memory, soft uint64 // memory of the process and GOMEMLIMIT, in bytes
	limits       chaingql.Limits
}

// sizeEnv is the name of an environment variable. Its value is the memory of a row in the table of sizes in
// docs/operations.md, such as "512 MB". If it is empty, the first row is used.
const sizeEnv = "CHAINGQL_ATTACK_SIZE"

// documentedSize reads a row of the table of sizes in docs/operations.md.
func documentedSize() (s size, err error) {
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		return s, err
	}
	_, table, _ := strings.Cut(string(text), "| memory ")
	table, _, _ = strings.Cut(table, "\n\n")
	lines := strings.Split(table, "\n")
	row := slices.IndexFunc(lines[min(2, len(lines)):], func(line string) bool {
		return strings.HasPrefix(line, "| "+os.Getenv(sizeEnv))
	})
	if row < 0 {
		return s, errors.New("docs/operations.md has no such row in a table of sizes")
	}
	names, cells := strings.Split(lines[0], "|"), strings.Split(strings.TrimPrefix(lines[2+row], "|"), "|")
	for i, cell := range cells {
		number, unit, _ := strings.Cut(strings.TrimSpace(cell), " ")
		n, _ := strconv.ParseUint(strings.ReplaceAll(number, ",", ""), 10, 32)
		n *= map[string]uint64{"": 1, "MiB": 1 << 20, "MB": 1e6, "GB": 1e9}[unit]
		name := strings.Trim(names[i], " `")
		limit := reflect.ValueOf(&s.limits).Elem().FieldByName(name)
		switch {
		case i == 0:
			s.memory = n
		case name == "GOMEMLIMIT":
			s.soft = n
		case limit.IsValid() && n > 0:
			limit.SetInt(int64(n))
		}
	}
	if s.memory == 0 || s.soft == 0 || s.limits.Connections == 0 || s.limits.PendingResponseBytes == 0 {
		return s, fmt.Errorf("docs/operations.md has the size %+v", s)
	}
	return s, nil
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
