package soak_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// A child is the service in a separate process. It exits when its standard input is closed, so also
// when this process ends.
type child struct {
	addr  string
	cmd   *exec.Cmd
	input io.WriteCloser
	lines *bufio.Reader
}

// replyTimeout is the time within which the service must reply to a command.
const replyTimeout = 30 * time.Second

func startChild(kind string) (*child, error) {
	c := &child{cmd: exec.Command(os.Args[0])}
	c.cmd.Env = append(os.Environ(), serviceKindEnv+"="+kind)
	c.cmd.Stderr = os.Stderr
	var err error
	if c.input, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	output, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	c.lines = bufio.NewReader(output)
	if c.addr, err = c.lines.ReadString('\n'); err != nil {
		c.stop()
		return nil, fmt.Errorf("the service failed to start: %w", err)
	}
	c.addr = strings.TrimSpace(c.addr)
	return c, nil
}

// stop closes the service's input and waits until it exits. It kills it after 5 seconds.
func (c *child) stop() {
	_ = c.input.Close()
	ended := time.AfterFunc(5*time.Second, func() { _ = c.cmd.Process.Kill() })
	defer ended.Stop()
	_ = c.cmd.Wait()
}

// ask sends a command to the service and returns its resource usage.
func (c *child) ask(what string) (usage, error) {
	var h usage
	if _, err := io.WriteString(c.input, what+"\n"); err != nil {
		return h, fmt.Errorf("the service exited: %w", err)
	}
	// SIGQUIT makes the service print its stacks.
	hung := time.AfterFunc(replyTimeout, func() { _ = c.cmd.Process.Signal(syscall.SIGQUIT) })
	line, err := c.lines.ReadBytes('\n')
	hung.Stop()
	if err != nil {
		return h, fmt.Errorf("the service exited: %w", err)
	}
	if err := json.Unmarshal(line, &h.state); err != nil {
		return h, err
	}
	if h.Trouble != "" {
		return h, errors.New(h.Trouble)
	}
	h.rss, h.files, err = processUsage(c.cmd.Process.Pid)
	return h, err
}

// usage is the resource usage of the service.
type usage struct {
	state
	rss   int64 // in bytes
	files int
}

// memory returns the resident memory without free pages. FreeOSMemory leaves up to a few megabytes
// of free pages, more than a leak in ten minutes may take.
func (h usage) memory() int64 { return h.rss - h.Free }

func (h usage) String() string {
	return fmt.Sprintf("RSS %.1f MB (free %.1f, heap %.1f), %d goroutines, %d files", float64(h.rss)/1e6,
		float64(h.Free)/1e6, float64(h.Heap)/1e6, h.Goroutines, h.files)
}

// processUsage reads from /proc how much memory a process has and how many files it has open.
func processUsage(pid int) (rss int64, files int, err error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(status)) {
		if n, _ := fmt.Sscanf(line, "VmRSS: %d kB", &rss); n == 1 {
			break
		}
	}
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	return rss << 10, len(open), err
}

// settled waits until the service has released its connections, and returns what the service then uses. It returns when
// the numbers of goroutines and files have not decreased for a second and do not exceed those of most, or after wait.
func (c *child) settled(most *usage, wait time.Duration) (usage, error) {
	var least usage
	for deadline, since := time.Now().Add(wait), time.Now(); ; time.Sleep(50 * time.Millisecond) {
		h, err := c.ask("state")
		if err != nil {
			return h, err
		}
		if least.Goroutines == 0 || h.Goroutines < least.Goroutines || h.files < least.files {
			least, since = h, time.Now()
		}
		enough := most == nil || least.Goroutines <= most.Goroutines && least.files <= most.files
		if time.Since(since) > time.Second && enough || time.Now().After(deadline) {
			break
		}
	}
	h, err := c.ask("free")
	h.Goroutines, h.files = least.Goroutines, least.files // ignores temporary goroutines and files
	return h, err
}
