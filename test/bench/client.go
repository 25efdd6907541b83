package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// subscribers is the state of a client process with many subscribers. The process only reads and counts
// messages.
type subscribers struct {
	addr    string
	dialect dialect
	stream  func(int) stream
	poller  *poller
	fds     []int
	rest    [][]byte // incomplete frame of each socket
	buf     []byte
	typed   []byte // incomplete line of standard input
	out     *json.Encoder

	wanted   int
	arrivals []int64 // Unix time in nanoseconds
	bytes    int
	deadline time.Time
	began    time.Duration // CPU time of this process when the command expect arrived

	shortLived *shortLived
}

// A delivery describes the messages that arrived before the deadline.
type delivery struct {
	Count, Bytes int   // number of messages, and the size of all together
	P99, Last    int64 // arrival times of a message, as Unix time in nanoseconds
	CPU          int64 // CPU time of the client process for reading, in nanoseconds
}

// client runs a client process. It replies to each line of its standard input, which is a command, with
// a line on its standard output.
//
//	connect N     opens N more sockets and subscribes on each
//	expect N MS   replies immediately, and again after N messages or MS milliseconds
//	churn R       starts R short-lived clients per second
//	churn 0       stops that and replies with the number of short-lived clients
func client(args []string) error {
	if len(args) != 3 {
		return errors.New("client needs three arguments: the address, the peer, and \"same\" or \"different\"")
	}
	p, err := newPoller()
	if err != nil {
		return err
	}
	c := &subscribers{addr: args[0], dialect: dialectOf(args[1]), stream: sameStream, poller: p,
		buf: make([]byte, 256<<10), out: json.NewEncoder(os.Stdout)}
	if args[2] == "different" {
		c.stream = differentStream
	}
	if err := p.add(0, -1); err != nil {
		return err
	}
	for {
		events, err := p.wait(100)
		if err != nil {
			return err
		}
		now := time.Now().UnixNano()
		for _, e := range events {
			if e.Fd < 0 {
				err = c.listen()
			} else {
				err = c.read(int(e.Fd), now)
			}
			if err == io.EOF {
				return nil
			}
			if err != nil {
				return err
			}
		}
		if c.wanted > 0 && (len(c.arrivals) >= c.wanted || time.Now().After(c.deadline)) {
			if err := c.writeDelivery(); err != nil {
				return err
			}
		}
	}
}

// writeDelivery writes a delivery to standard output and stops expecting messages.
func (c *subscribers) writeDelivery() error {
	d := delivery{Count: len(c.arrivals), Bytes: c.bytes, CPU: int64(cpu() - c.began)}
	slices.Sort(c.arrivals)
	if n := len(c.arrivals); n > 0 {
		d.P99, d.Last = c.arrivals[n*99/100], c.arrivals[n-1]
	}
	c.wanted = 0
	return c.out.Encode(d)
}

// listen executes the available commands on standard input. It returns io.EOF at the end of the input.
func (c *subscribers) listen() error {
	n, err := syscall.Read(0, c.buf)
	switch {
	case err == syscall.EAGAIN || err == syscall.EINTR:
		return nil
	case err != nil:
		return err
	case n == 0:
		return io.EOF
	}
	c.typed = append(c.typed, c.buf[:n]...)
	for {
		line, rest, whole := bytes.Cut(c.typed, []byte("\n"))
		if !whole {
			return nil
		}
		if err := c.execute(string(line)); err != nil {
			return err
		}
		c.typed = rest
	}
}

func (c *subscribers) execute(line string) error {
	word, numbers, _ := strings.Cut(line, " ")
	var n, ms int
	switch _, err := fmt.Sscan(numbers, &n, &ms); {
	case err != nil && word == "expect":
		return err
	case word == "connect":
		if err := c.connect(n); err != nil {
			return err
		}
	case word == "expect":
		c.wanted, c.arrivals, c.bytes = n, c.arrivals[:0], 0
		c.began = cpu()
		c.deadline = time.Now().Add(time.Duration(ms) * time.Millisecond)
	case word == "churn":
		if n > 0 {
			c.shortLived = startShortLived(c.addr, c.dialect, n)
			break
		}
		connected, err := c.shortLived.stop()
		if err != nil {
			return err
		}
		return c.out.Encode(connected)
	default:
		return fmt.Errorf("client received an unknown command: %q", line)
	}
	return c.out.Encode(len(c.fds))
}

// connect opens n sockets, four at a time.
func (c *subscribers) connect(n int) error {
	base := len(c.fds)
	c.fds, c.rest = append(c.fds, make([]int, n)...), append(c.rest, make([][]byte, n)...)
	const workers = 4
	failed := make([]error, workers)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := base + w; i < base+n && failed[w] == nil; i += workers {
				c.fds[i], c.rest[i], failed[w] = openSocket(c.addr, c.dialect, c.stream(i))
			}
		})
	}
	wg.Wait()
	for i := base; i < base+n; i++ {
		failed = append(failed, c.poller.add(c.fds[i], i))
	}
	return errors.Join(failed...)
}

// read processes the available data of socket i. The argument now is the arrival time of its messages.
func (c *subscribers) read(i int, now int64) error {
	n, err := syscall.Read(c.fds[i], c.buf)
	switch {
	case err == syscall.EAGAIN || err == syscall.EINTR:
		return nil
	case err != nil:
		return fmt.Errorf("socket %d: %w", i, err)
	case n == 0:
		return fmt.Errorf("socket %d: server closed the connection", i)
	}
	p := c.buf[:n]
	if len(c.rest[i]) > 0 {
		p = append(c.rest[i], p...)
	}
	for {
		f, rest, whole := cutFrame(p)
		if !whole {
			c.rest[i] = append(c.rest[i][:0], p...)
			return nil
		}
		p = rest
		switch {
		case f.opcode == pingFrame:
			if err := send(c.fds[i], appendFrame(nil, pongFrame, f.payload)); err != nil {
				return err
			}
		case f.opcode == closeFrame:
			return fmt.Errorf("socket %d: server sent a close frame: %.200q", i, f.payload)
		case bytes.Contains(f.payload, nextWord) || bytes.Contains(f.payload, dataWord):
			c.arrivals = append(c.arrivals, now)
			c.bytes += len(f.payload)
		case bytes.Contains(f.payload, []byte(`"error"`)):
			return fmt.Errorf("socket %d: server sent an error: %.300s", i, f.payload)
		}
	}
}
