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
	"strings"
	"sync"
	"time"
)

// asServer has the test binary be a server under attack of the kind it names.
const asServer = "CHAINGQL_ATTACK_SERVER"

// A child is a server in a process of its own. It ends when its input does, so
// also with this process.
type child struct {
	kind  string
	addr  string
	http2 string // the address that speaks HTTP/2 without TLS, too
	cmd   *exec.Cmd
	input io.WriteCloser
	lines chan string
	died  chan struct{}

	asking sync.Mutex // one at a time
	mu     sync.Mutex // guards what follows
	output bytes.Buffer
}

// maxMemory is what a weak server may hold before Go's collector works hard.
const maxMemory = "1GiB"

func startChild(kind string) (*child, error) {
	c := &child{kind: kind, cmd: exec.Command(os.Args[0]), lines: make(chan string, 1), died: make(chan struct{})}
	c.cmd.Env = append(os.Environ(), asServer+"="+kind, "GOTRACEBACK=single")
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
			case <-time.After(time.Minute): // nobody asked
			}
		}
		_ = c.cmd.Wait() // how it ended, its output tells
		close(c.died)
	}()
	addrs, err := c.line(time.Minute)
	c.addr, c.http2, _ = strings.Cut(addrs, " ")
	if err != nil {
		c.stop()
		return nil, fmt.Errorf("start: %w", err)
	}
	return c, nil
}

// Write keeps the beginning of what the server says on its error output: how it
// died is in the first lines.
func (c *child) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if room := 2000 - c.output.Len(); room > 0 {
		c.output.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

// said is what the server said on its error output.
func (c *child) said() string {
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

// stop ends the server, whatever it is busy with.
func (c *child) stop() {
	c.input.Close()
	select {
	case <-c.died:
	case <-time.After(time.Second):
		_ = c.cmd.Process.Kill()
		<-c.died
	}
}

func (c *child) line(wait time.Duration) (string, error) {
	select {
	case line := <-c.lines:
		return line, nil
	case <-c.died:
		return "", errors.New("the server has ended")
	case <-time.After(wait):
		return "", errors.New("the server does not say anything")
	}
}

func (c *child) ask(what string) (string, error) {
	c.asking.Lock()
	defer c.asking.Unlock()
	if _, err := io.WriteString(c.input, what+"\n"); err != nil {
		return "", err
	}
	return c.line(time.Minute)
}

// state asks what the server holds, and at most held.
func (c *child) state() (state, error) { return c.stateOf("state") }

// anew does so and has all that is at most begin anew.
func (c *child) anew() (state, error) { return c.stateOf("anew") }

func (c *child) stateOf(what string) (state, error) {
	line, err := c.ask(what)
	if err != nil {
		return state{}, err
	}
	var s state
	return s, json.Unmarshal([]byte(line), &s)
}

// spent asks what processor time the server has taken since it began.
func (c *child) spent() (time.Duration, error) {
	line, err := c.ask("spent")
	if err != nil {
		return 0, err
	}
	return time.ParseDuration(line)
}

// settled waits until no more goroutines and files are there than were before,
// and returns what the server holds then, or at last.
func (c *child) settled(before state, wait time.Duration) (state, error) {
	for deadline := time.Now().Add(wait); ; time.Sleep(50 * time.Millisecond) {
		s, err := c.state()
		if err != nil || s.Goroutines <= before.Goroutines && s.Files <= before.Files || time.Now().After(deadline) {
			return s, err
		}
	}
}

// stacks are all the server's goroutines.
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
