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

// A child is the service in a process of its own. It ends when its input does,
// so also with this process.
type child struct {
	addr  string
	cmd   *exec.Cmd
	input io.WriteCloser
	lines *bufio.Reader
}

// answering is the time that the service has to say what it holds.
const answering = 30 * time.Second

func startChild(kind string) (*child, error) {
	c := &child{cmd: exec.Command(os.Args[0])}
	c.cmd.Env = append(os.Environ(), asService+"="+kind)
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
		return nil, fmt.Errorf("the service does not start: %w", err)
	}
	c.addr = strings.TrimSpace(c.addr)
	return c, nil
}

// stop ends the service and waits for it.
func (c *child) stop() {
	_ = c.input.Close()
	ended := time.AfterFunc(5*time.Second, func() { _ = c.cmd.Process.Kill() })
	defer ended.Stop()
	_ = c.cmd.Wait()
}

// ask has the service do something and says what it holds then.
func (c *child) ask(what string) (held, error) {
	var h held
	if _, err := io.WriteString(c.input, what+"\n"); err != nil {
		return h, fmt.Errorf("the service has stopped: %w", err)
	}
	hung := time.AfterFunc(answering, func() { _ = c.cmd.Process.Signal(syscall.SIGQUIT) }) // its stacks tell why
	line, err := c.lines.ReadBytes('\n')
	hung.Stop()
	if err != nil {
		return h, fmt.Errorf("the service has stopped: %w", err)
	}
	if err := json.Unmarshal(line, &h.state); err != nil {
		return h, err
	}
	if h.Trouble != "" {
		return h, errors.New(h.Trouble)
	}
	h.rss, h.files, err = holds(c.cmd.Process.Pid)
	return h, err
}

// held is what the service holds.
type held struct {
	state
	rss   int64 // bytes
	files int
}

// memory is what is resident and in use. Of the free pages FreeOSMemory leaves some
// megabytes now and nothing then, which is more than a leak in ten minutes may be.
func (h held) memory() int64 { return h.rss - h.Free }

func (h held) String() string {
	return fmt.Sprintf("RSS %.1f MB (free %.1f, heap %.1f), %d goroutines, %d files", float64(h.rss)/1e6, float64(h.Free)/1e6, float64(h.Heap)/1e6, h.Goroutines, h.files)
}

// holds reads what the system knows of a process.
func holds(pid int) (rss int64, files int, err error) {
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

// settled waits until nobody is left whose leaving takes a moment: until the
// service has held no less than before for a second, and as little as it should
// or the wait is over.
func (c *child) settled(most *held, wait time.Duration) (held, error) {
	var least held
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
	h.Goroutines, h.files = least.Goroutines, least.files // what it holds on the way is of no account
	return h, err
}
