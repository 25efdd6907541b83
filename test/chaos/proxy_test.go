package chaos_test

import (
	"context"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// A proxy forwards connections to the service. It delays, throttles and cuts them. Some cuts are in the
// middle of a frame.
type proxy struct {
	listener net.Listener
	target   string
	narrow   bool // use small buffers, so that a slow reader stalls the writes of the service
	ctx      context.Context
	stop     context.CancelFunc
	running  sync.WaitGroup

	cuts, torn, delays, throttled atomic.Int64 // torn counts the cuts in the middle of a message

	mu    sync.Mutex
	rng   *rand.Rand
	lines map[*line]struct{}
}

// A line is one connection through the proxy. It consists of the connection from the client, down, and
// the connection to the service, up.
type line struct {
	down, up net.Conn
	tear     atomic.Bool // cut the line in the middle of the next message of the service
	once     sync.Once
}

// newProxy starts a proxy on 127.0.0.1. The caller must close it.
func newProxy(target string, narrow bool, seed uint64) (*proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{listener: listener, target: target, narrow: narrow, rng: rand.New(rand.NewPCG(seed, 2)),
		lines: map[*line]struct{}{}}
	p.ctx, p.stop = context.WithCancel(context.Background())
	p.running.Go(p.accept)
	return p, nil
}

func (p *proxy) addr() string { return p.listener.Addr().String() }

// close closes all connections and waits until all goroutines have ended.
func (p *proxy) close() {
	p.stop()
	_ = p.listener.Close()
	p.mu.Lock()
	for l := range p.lines {
		l.close(false)
	}
	p.mu.Unlock()
	p.running.Wait()
}

func (p *proxy) accept() {
	for {
		down, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.running.Go(func() { p.serve(down) })
	}
}

func (p *proxy) serve(down net.Conn) {
	up, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(p.ctx, "tcp", p.target)
	if err != nil {
		_ = down.Close()
		return
	}
	if p.narrow {
		_ = up.(*net.TCPConn).SetReadBuffer(narrowBuffer)
		_ = down.(*net.TCPConn).SetWriteBuffer(narrowBuffer)
	}
	l := &line{down: down, up: up}
	p.mu.Lock()
	p.lines[l] = struct{}{}
	toUp, toDown := p.conditions(), p.conditions()
	p.mu.Unlock()
	if p.ctx.Err() != nil {
		l.close(false) // close may have run before the line was registered
	}
	var both sync.WaitGroup
	both.Go(func() { p.pass(l, l.up, l.down, toUp) })
	both.Go(func() { p.pass(l, l.down, l.up, toDown) })
	both.Wait()
	p.mu.Lock()
	delete(p.lines, l)
	p.mu.Unlock()
}

const (
	narrowBuffer = 8 << 10  // size of small buffers, in bytes
	throttle     = 96 << 10 // rate of throttled connections, in bytes per second
)

// conditions determine how a connection is delayed in one direction.
type conditions struct {
	rng       *rand.Rand
	throttled bool
}

// conditions returns random conditions. The caller holds p.mu.
func (p *proxy) conditions() conditions {
	return conditions{rand.New(rand.NewPCG(p.rng.Uint64(), 3)), p.rng.IntN(8) == 0}
}

// pass forwards data in one direction. When either side has closed its connection, it closes the line.
func (p *proxy) pass(l *line, to, from net.Conn, w conditions) {
	defer l.close(false)
	if w.throttled {
		p.throttled.Add(1)
	}
	size := 16 << 10
	if p.narrow {
		size = narrowBuffer / 4
	}
	buf := make([]byte, size)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if w.rng.IntN(50) == 0 {
				p.delays.Add(1)
				pause(p.ctx, time.Duration(w.rng.IntN(40)+1)*time.Millisecond)
			}
			if w.throttled {
				pause(p.ctx, time.Duration(n)*time.Second/throttle)
			}
			if to == l.down && l.tear.Load() {
				_, _ = to.Write(buf[:w.rng.IntN(n)])
				p.cuts.Add(1)
				p.torn.Add(1)
				return
			}
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// close closes both connections and reports whether it was the first call. If abruptly is true, it also
// discards data in flight.
func (l *line) close(abruptly bool) (first bool) {
	l.once.Do(func() {
		first = true
		if abruptly {
			_ = l.down.(*net.TCPConn).SetLinger(0)
			_ = l.up.(*net.TCPConn).SetLinger(0)
		}
		_ = l.down.Close()
		_ = l.up.Close()
	})
	return first
}

// cut cuts one line, either immediately or in the middle of the next message of the service.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.lines { // the order is random and does not depend on the seed
		switch p.rng.IntN(4) {
		case 0, 1:
			l.tear.Store(true)
		default:
			if l.close(p.rng.IntN(2) == 0) {
				p.cuts.Add(1)
			}
		}
		return
	}
}

// pause waits for d. It returns false if ctx is done before d has passed.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
