package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

// environment lists facts about the machine and its software, on which the figures depend.
func environment() [][2]string {
	return [][2]string{
		{"date", time.Now().UTC().Format("2006-01-02 15:04 MST")},
		{"machine", machine()},
		{"load average at the end", loadAverage()},
		{"versions", strings.Join(versions(), ", ")},
	}
}

// machine returns the number of cores, the CPU model and the platform.
func machine() string {
	model := "an unknown CPU"
	text, _ := os.ReadFile("/proc/cpuinfo") // Linux only
	for line := range strings.Lines(string(text)) {
		if name, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(name) == "model name" {
			model = strings.TrimSpace(value)
			break
		}
	}
	return fmt.Sprintf("%d cores of %s, %s/%s", runtime.NumCPU(), model, runtime.GOOS, runtime.GOARCH)
}

// cpuSet is a set of CPUs: bit i of the numbers stands for CPU i.
type cpuSet [16]uint64

// sched calls the system call sched_getaffinity or sched_setaffinity for the calling thread.
func (s *cpuSet) sched(call uintptr) error {
	_, _, errno := syscall.RawSyscall(call, 0, unsafe.Sizeof(*s), uintptr(unsafe.Pointer(s)))
	if errno != 0 {
		return errno
	}
	return nil
}

// launchOnOneCPU starts the server of a peer so that all of its threads run on the first CPU. GOMAXPROCS is then 1.
func launchOnOneCPU(ctx context.Context, peer string) (s *server, err error) {
	failed := onCPU(0, func() { s, err = launch(ctx, peer) })
	if failed != nil && s != nil {
		s.stop()
	}
	return s, errors.Join(err, failed)
}

// onCPU calls f on a thread that runs only on the n-th CPU that this process may use, or on the last one if there are
// fewer. A process inherits the CPUs of the thread that starts it.
func onCPU(n int, f func()) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var allowed, one cpuSet
	if err := allowed.sched(syscall.SYS_SCHED_GETAFFINITY); err != nil {
		return fmt.Errorf("sched_getaffinity: %w", err)
	}
	for i := range len(allowed) * 64 {
		if bit := allowed[i/64] & (1 << (i % 64)); bit != 0 && n >= 0 {
			one = cpuSet{}
			one[i/64] = bit
			n--
		}
	}
	if err := one.sched(syscall.SYS_SCHED_SETAFFINITY); err != nil {
		return fmt.Errorf("sched_setaffinity: %w", err)
	}
	f()
	if err := allowed.sched(syscall.SYS_SCHED_SETAFFINITY); err != nil {
		return fmt.Errorf("sched_setaffinity: %w", err)
	}
	return nil
}

// loadAverage returns the load average of the machine, which includes the load of this program.
func loadAverage() string {
	text, _ := os.ReadFile("/proc/loadavg") // Linux only
	figures, _, _ := strings.Cut(string(text), "/")
	return figures[:max(0, strings.LastIndexByte(figures, ' '))]
}

// versions lists the versions of Go, Node.js and the peers.
func versions() []string {
	all := []string{runtime.Version()}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, path := range []string{
			"github.com/99designs/gqlgen", "github.com/graph-gophers/graphql-go",
			"github.com/graph-gophers/graphql-transport-ws",
			"github.com/graphql-go/graphql", "github.com/graphql-go/handler", "github.com/vektah/gqlparser/v2",
			"github.com/coder/websocket",
		} {
			if i := slices.IndexFunc(info.Deps, func(m *debug.Module) bool { return m.Path == path }); i >= 0 {
				all = append(all, strings.TrimPrefix(path, "github.com/")+" "+info.Deps[i].Version)
			}
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	node, err := exec.CommandContext(ctx, "node", "--version").Output()
	if err != nil {
		return all // without Node.js, its peers are not measured
	}
	all = append(all, "node "+strings.TrimSpace(string(node)))
	for _, name := range []string{"mercurius", "graphql-jit", "fastify", "graphql-yoga", "graphql"} {
		var p struct{ Version string }
		text, err := os.ReadFile("node/node_modules/" + name + "/package.json")
		if err == nil && json.Unmarshal(text, &p) == nil {
			all = append(all, name+" "+p.Version)
		}
	}
	return all
}
