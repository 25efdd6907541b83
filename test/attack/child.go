package attack

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// serverKindEnv is the name of an environment variable. If it is set, the test binary runs a server
// whose kind is the value of the variable.
const serverKindEnv = "CHAINGQL_ATTACK_SERVER"

// A child is a server in a separate process. It exits when its standard input is closed, and
// therefore also when this process ends.
type child struct {
	kind  string
	addr  string
	http2 string // address of the listener that also accepts HTTP/2 without TLS
	// The addresses of the listeners whose sockets have no non-blocking writes.
	tls, wrapped string
	cmd          *exec.Cmd
	input        io.WriteCloser
	lines        chan string
	died         chan struct{}

	asking sync.Mutex // serializes requests to the child
	mu     sync.Mutex // guards output
	output bytes.Buffer
}

// maxMemory is the GOMEMLIMIT of weak servers.
const maxMemory = "1GiB"

func startChild(kind string) (*child, error) {
	c := &child{kind: kind, cmd: exec.Command(os.Args[0]), lines: make(chan string, 1), died: make(chan struct{})}
	c.cmd.Env = append(os.Environ(), serverKindEnv+"="+kind, "GOTRACEBACK=single")
	if kind != strong && kind != confined {
		c.cmd.Env = append(c.cmd.Env, "GOMEMLIMIT="+maxMemory)
	}
	c.cmd.Stderr = c
	var err error
	if c.input, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		for r := bufio.NewReader(stdout); ; {
			line, err := r.ReadString('\n')
			if err != nil {
				break
			}
			select {
			case c.lines <- line[:len(line)-1]:
			case <-time.After(time.Minute): // the caller that asked has stopped waiting
			}
		}
		_ = c.cmd.Wait() // output contains the cause
		close(c.died)
	}()
	addrs, err := c.line(time.Minute)
	if err == nil {
		_, err = fmt.Sscan(addrs, &c.addr, &c.http2, &c.tls, &c.wrapped)
	}
	if err != nil {
		c.stop()
		return nil, fmt.Errorf("start server: %w", err)
	}
	return c, nil
}

// Write keeps the first 2,000 bytes of the server's standard error, which contain the cause of a
// crash.
func (c *child) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if room := 2000 - c.output.Len(); room > 0 {
		c.output.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

// errorOutput returns the beginning of the server's standard error.
func (c *child) errorOutput() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.output.String()
}

func (c *child) dead() bool {
	select {
	case <-c.died:
		return true
	default:
		return false
	}
}

// stop closes the server's input and kills it if it does not exit within a second.
func (c *child) stop() {
	c.input.Close()
	select {
	case <-c.died:
	case <-time.After(time.Second):
		_ = c.cmd.Process.Kill()
		<-c.died
	}
}

// line returns the next line that the server prints.
func (c *child) line(wait time.Duration) (string, error) {
	select {
	case line := <-c.lines:
		return line, nil
	case <-c.died:
		return "", errors.New("the server has exited")
	case <-time.After(wait):
		return "", errors.New("the server does not reply to commands")
	}
}

// ask sends a command to the server and returns its reply.
func (c *child) ask(command string) (string, error) {
	c.asking.Lock()
	defer c.asking.Unlock()
	if _, err := io.WriteString(c.input, command+"\n"); err != nil {
		return "", err
	}
	return c.line(time.Minute)
}

// state returns the current resource usage of the server and its peaks.
func (c *child) state() (state, error) { return c.stateOf("state") }

// resetPeaks resets the peaks of the server and then returns its state.
func (c *child) resetPeaks() (state, error) { return c.stateOf("reset") }

func (c *child) stateOf(command string) (state, error) {
	line, err := c.ask(command)
	if err != nil {
		return state{}, err
	}
	var s state
	return s, json.Unmarshal([]byte(line), &s)
}

// spent returns the CPU time that the server has used since it started. It does not ask the server, which may be busy:
// a subscriber that waited for its answer would read blocks and pings too late.
func (c *child) spent() (time.Duration, error) {
	const schedulerClock = 2 // CPUCLOCK_SCHED of Linux: the time of all threads of a process
	var at unix.Timespec
	if err := unix.ClockGettime(int32(^c.cmd.Process.Pid<<3|schedulerClock), &at); err != nil {
		return 0, fmt.Errorf("read the CPU time of the server: %w", err)
	}
	return time.Duration(at.Nano()), nil
}

// settled waits until the server has no more goroutines and files than in the state before, but not
// longer than wait. It returns the server's last state.
func (c *child) settled(before state, wait time.Duration) (state, error) {
	for deadline := time.Now().Add(wait); ; time.Sleep(50 * time.Millisecond) {
		s, err := c.state()
		if err != nil || s.Goroutines <= before.Goroutines && s.Files <= before.Files || time.Now().After(deadline) {
			return s, err
		}
	}
}

// stacks returns the stacks of all goroutines of the server.
func (c *child) stacks() string {
	line, err := c.ask("stacks")
	if err != nil {
		return err.Error()
	}
	text, err := strconv.Unquote(line)
	if err != nil {
		return err.Error()
	}
	return text
}
