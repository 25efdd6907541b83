// Command worker does the work that command compare measures. Each line of its standard input contains
// a kind of work and the number of repetitions. The worker replies with the cost of one repetition.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

const (
	address     = "0:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	subscribers = 200
	protocol    = "graphql-transport-ws"
)

var bodies = map[string]string{
	"balance": `{"query":"query($a:String!){blockchain{account(address:$a){info{address balance}}}}",` +
		`"variables":{"a":"` + address + `"}}`,
	"latest": `{"query":"{blockchain{blocks(workchain:-1,last:1)` +
		`{edges{node{id seq_no workchain_id shard gen_utime chain_order}}}}}"}`,
	"last50": `{"query":"{blockchain{blocks(workchain:-1,last:50)` +
		`{edges{node{id seq_no workchain_id shard gen_utime chain_order}}}}}"}`,
}

func main() {
	err := errors.New("unknown arguments")
	switch {
	case len(os.Args) == 1:
		err = serve()
	case len(os.Args) == 4 && os.Args[1] == "peers":
		err = peers(os.Args[2], os.Args[3])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1)
	}
}

// A host is a Handler with its chain. An http.Server on the loopback interface serves it, too.
type host struct {
	chain   *memchain.Chain
	handler *chaingql.Handler
	addr    string
	height  int
}

func serve() error {
	h := &host{chain: memchain.New()}
	parsed, err := chaingql.ParseAddress(address)
	if err != nil {
		return err
	}
	h.chain.SetBalance(parsed, big.NewInt(1_234_567_890))
	h.handler = chaingql.New(h.chain, &chaingql.Options{Logger: slog.New(slog.DiscardHandler)})
	if err := h.grow(2000); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	h.addr = listener.Addr().String()
	server := &http.Server{Handler: h.handler, ReadHeaderTimeout: 10 * time.Second}
	defer func() { _ = server.Close() }()
	go func() { _ = server.Serve(listener) }() // returns after Close
	// The Handler follows the chain only while there is a subscriber.
	live, err := h.dial(1)
	if err != nil {
		return err
	}
	defer live.stop()
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		name, text, _ := strings.Cut(in.Text(), " ")
		n, err := strconv.Atoi(text)
		if err != nil {
			return err
		}
		var cost float64
		switch name {
		case "fanout":
			cost, err = h.fanOut(n)
		case "memory":
			cost, err = h.memory(n)
		default:
			cost, err = h.query(bodies[name], n)
		}
		if err != nil {
			return err
		}
		fmt.Println(cost)
	}
	return nil
}

// grow appends n blocks, alternating between two workchains.
func (h *host) grow(n int) error {
	for range n {
		h.height++
		b := chaingql.Block{
			Workchain: -int32(h.height % 2), Shard: 1 << 63, SeqNo: uint32((h.height + 1) / 2),
			Time: time.Unix(1_700_000_000+int64(h.height), 0), Cursor: chaingql.Cursor(fmt.Sprintf("%08x", h.height)),
		}
		b.Hash[0], b.Hash[1] = byte(h.height), byte(h.height>>8)
		if err := h.chain.Append(b); err != nil {
			return err
		}
	}
	return nil
}

// query runs n queries and returns the CPU time per query in nanoseconds. It sets GOMAXPROCS to 1,
// because with a higher value, the garbage collector would use idle CPUs.
func (h *host) query(body string, n int) (float64, error) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	request, err := http.NewRequestWithContext(context.Background(), http.MethodPost, "http://x/p/graphql", nil)
	if err != nil {
		return 0, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.ContentLength = int64(len(body))
	w := &discard{header: http.Header{}}
	run := func(n int) {
		for range n {
			clear(w.header)
			w.bytes = 0
			request.Body = io.NopCloser(strings.NewReader(body))
			h.handler.ServeHTTP(w, request)
		}
	}
	run(n / 10)
	if w.status >= 300 || w.bytes < 50 {
		return 0, fmt.Errorf("query failed with status %d and a response of %d bytes", w.status, w.bytes)
	}
	runtime.GC()
	before := cpu()
	run(n)
	return float64(cpu()-before) / float64(n), nil
}

// A discard is a ResponseWriter that records only the status and the size of the response.
type discard struct {
	header        http.Header
	status, bytes int
}

func (d *discard) Header() http.Header    { return d.header }
func (d *discard) WriteHeader(status int) { d.status = status }
func (d *discard) Write(p []byte) (int, error) {
	d.bytes += len(p)
	return len(p), nil
}

// fanOut delivers n blocks to many subscribers, which run in a separate process. It returns the CPU time
// per block and subscriber in nanoseconds.
func (h *host) fanOut(n int) (float64, error) {
	p, err := h.dial(subscribers)
	if err != nil {
		return 0, err
	}
	defer p.stop()
	before := cpu()
	for range n {
		if err := h.grow(1); err != nil {
			return 0, err
		}
		time.Sleep(2 * time.Millisecond)
	}
	time.Sleep(100 * time.Millisecond)
	return float64(cpu()-before) / float64(n*subscribers), nil
}

// memory opens n idle sockets and returns the heap and stack memory per socket in bytes.
func (h *host) memory(n int) (float64, error) {
	before := inUse()
	p, err := h.dial(n)
	if err != nil {
		return 0, err
	}
	defer p.stop()
	return float64(inUse()-before) / float64(n), nil
}

// inUse returns the bytes of heap and stack memory in use.
func inUse() int64 {
	for range 3 { // repeated, because closed sockets are not released all at once
		time.Sleep(100 * time.Millisecond)
		debug.FreeOSMemory()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// cpu returns the CPU time that this process has used, in nanoseconds.
func cpu() int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

// A peerProcess is a child process with subscribers.
type peerProcess struct {
	command *exec.Cmd
	in      io.Closer
}

// dial starts a process with n subscribers. It returns when all of them have subscribed.
func (h *host) dial(n int) (*peerProcess, error) {
	c := exec.CommandContext(context.Background(), os.Args[0], "peers", h.addr, strconv.Itoa(n))
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.Start(); err != nil {
		return nil, err
	}
	p := &peerProcess{c, in}
	if !bufio.NewScanner(out).Scan() {
		p.stop()
		return nil, errors.New("subscribers could not connect")
	}
	time.Sleep(100 * time.Millisecond)
	return p, nil
}

func (p *peerProcess) stop() {
	_ = p.in.Close()
	_ = p.command.Wait()
}

// peers opens sockets, subscribes to all blocks on each and prints a line when all are connected. Then
// it reads blocks until its standard input is closed. The argument count is the number of sockets.
func peers(addr, count string) error {
	n, err := strconv.Atoi(count)
	if err != nil {
		return err
	}
	var ready sync.WaitGroup
	for range n {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		hello := "GET /p/graphql HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
			"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n" +
			"Sec-WebSocket-Protocol: " + protocol + "\r\n\r\n" +
			frame(`{"type":"connection_init"}`) +
			frame(`{"id":"1","type":"subscribe","payload":`+
				`{"query":"subscription{blocks{id seq_no workchain_id chain_order}}"}}`)
		if _, err := c.Write([]byte(hello)); err != nil {
			return err
		}
		ready.Add(1)
		go func() {
			seen, connected := make([]byte, 0, 4096), false
			for part := make([]byte, 4096); ; {
				k, err := c.Read(part)
				if err != nil {
					return
				}
				if connected {
					continue
				}
				if seen = append(seen, part[:k]...); strings.Contains(string(seen), "connection_ack") {
					connected, seen = true, nil
					ready.Done()
				}
			}
		}()
	}
	ready.Wait()
	fmt.Println("ready")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// frame returns a text frame of a client. The mask is zero, so the text is unchanged.
func frame(text string) string {
	head := []byte{0x81, 0x80 | byte(len(text))}
	if len(text) > 125 {
		head = []byte{0x81, 0x80 | 126, byte(len(text) >> 8), byte(len(text))}
	}
	return string(append(head, 0, 0, 0, 0)) + text
}
