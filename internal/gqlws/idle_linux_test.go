package gqlws

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// To run the measurement, which takes a minute and a half: go test -run TestIdleSockets -v ./internal/gqlws
// -idle.sockets=16000
var idleSockets = flag.Int("idle.sockets", 0, "number of idle connections; 0 skips the measurement of their CPU time")

// idleRole is the environment variable that contains the role of a process: the server, a loop of raw writes for
// comparison, or the peers of one of these. The test uses several processes, because one process may not open so many
// files.
const idleRole = "GQLWS_IDLE_ROLE"

func init() {
	if role := os.Getenv(idleRole); role != "" {
		n, err := strconv.Atoi(os.Args[1])
		if err == nil {
			err = map[string]func(n int) error{"server": idleServer, "raw": idleRaw, "peers": idlePeers}[role](n)
		}
		fmt.Fprintln(os.Stderr, role, err)
		os.Exit(1)
	}
}

const (
	idleKeepAlive = 15 * time.Second
	idleInterval  = idleKeepAlive / beatsPerInterval
	idleArrival   = 3 * idleInterval // time in which all peers connect
)

var (
	idleKeepAliveFrame = "\x81\x0d" + `{"type":"ka"}`
	idlePing           = "\x89\x00"
)

// The test compares the CPU time of a server with that of a loop of raw writes. Both run at the same time on the same
// machine, and write the same frames to the same number of connections.
func TestKeepAlivesOfIdleSocketsCostLittleMoreThanRawWrites(t *testing.T) {
	if *idleSockets == 0 {
		t.Log("not measured: -idle.sockets is not set, and the measurement would take a minute and a half")
		return
	}
	server, raw := startIdle(t, "server"), startIdle(t, "raw")
	for _, p := range []*idleProcess{server, raw} {
		startIdle(t, "peers", p.line(t))
	}
	for _, p := range []*idleProcess{server, raw} {
		p.line(t) // all peers are connected
	}
	time.Sleep(idleKeepAlive + idleArrival)
	server0, raw0 := server.cpu(t), raw.cpu(t)
	time.Sleep(10 * idleInterval)
	s, r := server.cpu(t)-server0, raw.cpu(t)-raw0
	ratio := float64(s) / float64(r)
	t.Logf("%d idle sockets in %v: %v of CPU time, the raw writes alone %v: ratio %.2f", *idleSockets, 10*idleInterval,
		s, r, ratio)
	if ratio > 1.3 {
		t.Errorf("idle sockets cost %.2f times the CPU time of their writes, want at most 1.3", ratio)
	}
}

// An idleProcess is a child process of the test. The test and the process exchange lines on stdin and stdout.
type idleProcess struct {
	in  io.Writer
	out *bufio.Reader
}

func startIdle(t *testing.T, role string, args ...string) *idleProcess {
	t.Helper()
	c := exec.CommandContext(t.Context(), os.Args[0], append([]string{fmt.Sprint(*idleSockets)}, args...)...)
	c.Env, c.Stderr = append(os.Environ(), idleRole+"="+role), os.Stderr
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	return &idleProcess{in, bufio.NewReader(out)}
}

func (p *idleProcess) line(t *testing.T) string {
	t.Helper()
	line, err := p.out.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(line)
}

// cpu returns the CPU time that the process has used.
func (p *idleProcess) cpu(t *testing.T) time.Duration {
	t.Helper()
	fmt.Fprintln(p.in)
	ns, err := strconv.ParseInt(p.line(t), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return time.Duration(ns)
}

// reportCPU responds to each line on stdin with the CPU time that this process has used. It returns when stdin ends.
func reportCPU() error {
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			return err
		}
		fmt.Println(u.Utime.Nano() + u.Stime.Nano())
	}
	return io.EOF
}

func idleServer(n int) error {
	o := testOptions
	o.KeepAliveInterval, o.MaxSockets = idleKeepAlive, 0
	s, ss := NewServer(o), newFakeSession(new(testing.T))
	ss.shared = true
	connected := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := s.Accept(w, r, ss); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}))
	fmt.Println(strings.TrimPrefix(srv.URL, "http://"))
	for connected < n {
		time.Sleep(100 * time.Millisecond)
		ss.mu.Lock()
		connected = len(ss.inits)
		ss.mu.Unlock()
	}
	fmt.Println("all")
	return reportCPU()
}

func idleRaw(n int) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	fds := make([]int, n)
	for i := range fds {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		raw, err := c.(*net.TCPConn).SyscallConn()
		if err != nil {
			return err
		}
		if err := raw.Control(func(fd uintptr) { fds[i] = int(fd) }); err != nil {
			return err
		}
		defer c.Close() // keeps c reachable, because the garbage collector would close it
	}
	fmt.Println("all")
	go func() {
		const slots = int(idleInterval / maxSlot)
		next := time.Now()
		for tick := 0; ; tick++ {
			next = next.Add(maxSlot)
			time.Sleep(time.Until(next))
			for i := tick % slots; i < n; i += slots {
				frames := idleKeepAliveFrame
				if (tick/slots+i)%beatsPerInterval == 0 {
					frames = idlePing + idleKeepAliveFrame
				}
				if _, err := syscall.Write(fds[i], []byte(frames)); err != nil {
					fmt.Fprintln(os.Stderr, "raw:", err)
					os.Exit(1)
				}
			}
		}
	}()
	return reportCPU()
}

// idlePeers connects peers that read everything and respond to pings.
func idlePeers(n int) error {
	addr, err := netip.ParseAddrPort(os.Args[2])
	if err != nil {
		return err
	}
	epoll, err := syscall.EpollCreate1(0)
	if err != nil {
		return err
	}
	hello := "GET /p/graphql HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n" +
		"Sec-WebSocket-Protocol: graphql-ws\r\n\r\n" +
		string(frameOf(true, opText, []byte(`{"type":"connection_init"}`)))
	go func() {
		begin := time.Now()
		for i := range n {
			time.Sleep(time.Until(begin.Add(idleArrival * time.Duration(i) / time.Duration(n))))
			fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
			if err == nil {
				err = syscall.Connect(fd, &syscall.SockaddrInet4{Addr: addr.Addr().As4(), Port: int(addr.Port())})
			}
			if err == nil {
				_, err = syscall.Write(fd, []byte(hello))
			}
			if err == nil {
				err = syscall.EpollCtl(epoll, syscall.EPOLL_CTL_ADD, fd,
					&syscall.EpollEvent{Events: syscall.EPOLLIN, Fd: int32(fd)})
			}
			if err != nil {
				fmt.Fprintln(os.Stderr, "peers:", err)
				os.Exit(1)
			}
		}
	}()
	pong := frameOf(true, opPong, nil)
	events, in := make([]syscall.EpollEvent, 256), make([]byte, 4096)
	for {
		got, err := syscall.EpollWait(epoll, events, -1)
		if err != nil && err != syscall.EINTR {
			return err
		}
		for _, e := range events[:max(0, got)] {
			k, err := syscall.Read(int(e.Fd), in)
			if err != nil || k == 0 {
				return fmt.Errorf("the server closed a connection: %w", err)
			}
			if strings.Contains(string(in[:k]), idlePing) {
				if _, err := syscall.Write(int(e.Fd), pong); err != nil {
					return err
				}
			}
		}
	}
}
