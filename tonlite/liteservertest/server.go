package liteservertest

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/chaingql/chaingql/tonlite/internal/lite"
)

// A Server serves a chain on an address of 127.0.0.1. Its methods may be called
// concurrently.
type Server struct {
	chain *Chain
	key   ed25519.PrivateKey
	addr  *net.TCPAddr

	mu       sync.Mutex
	listener net.Listener // nil while it is stopped
	conns    map[net.Conn]bool
	head     uint32
	oldest   uint32
	grown    chan struct{} // closed when the head moves
	stalls   int
	resumed  chan struct{} // closed when the last stall ends
	delay    time.Duration
	lie      Lie
	asked    map[string]int

	running sync.WaitGroup
}

// Start serves a complete chain. Call Stop if the Server is no longer used.
func Start(chain *Chain) (*Server, error) {
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		return nil, err
	}
	s := &Server{
		chain: chain, key: key, conns: make(map[net.Conn]bool),
		head: chain.last, oldest: chain.first, grown: make(chan struct{}),
		asked: make(map[string]int),
	}
	for {
		// The port is outside the range of outgoing connections: one of these could take it while the
		// Server is stopped.
		switch err := s.listen(fmt.Sprintf("127.0.0.1:%d", 10_000+rand.IntN(20_000))); {
		case err == nil:
			return s, nil
		case !errors.Is(err, syscall.EADDRINUSE):
			return nil, err
		}
	}
}

func (s *Server) listen(addr string) error {
	l, err := net.Listen("tcp4", addr)
	if err != nil {
		return fmt.Errorf("liteservertest: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listener, s.addr = l, l.Addr().(*net.TCPAddr)
	s.running.Go(func() { s.accept(l) })
	return nil
}

func (s *Server) accept(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		if s.listener != l { // stopped meanwhile
			s.mu.Unlock()
			_ = conn.Close()
			return
		}
		s.conns[conn] = true
		s.running.Go(func() {
			_ = lite.Serve(conn, s.key, s.answer) // ends with the connection
			s.mu.Lock()
			delete(s.conns, conn)
			s.mu.Unlock()
		})
		s.mu.Unlock()
	}
}

// Stop closes the listener and all connections. A second Stop does nothing.
func (s *Server) Stop() {
	s.mu.Lock()
	if s.listener != nil {
		_ = s.listener.Close()
		s.listener = nil
	}
	s.closeConnections()
	s.mu.Unlock()
	s.running.Wait()
}

// Restart starts a stopped Server again, with the same address and key.
func (s *Server) Restart() error {
	s.mu.Lock()
	stopped, addr := s.listener == nil, s.addr.String()
	s.mu.Unlock()
	if !stopped {
		return errors.New("liteservertest: the server was not stopped")
	}
	return s.listen(addr)
}

// Interrupt closes all connections, like a network failure. New ones are accepted.
func (s *Server) Interrupt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closeConnections()
}

func (s *Server) closeConnections() {
	for conn := range s.conns {
		_ = conn.Close()
	}
}

// Advance sets the newest masterchain block. A lower number than before simulates a lagging server.
func (s *Server) Advance(seqNo uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.head = seqNo
	close(s.grown)
	s.grown = make(chan struct{})
}

// Forget deletes the masterchain blocks below a seq_no.
func (s *Server) Forget(below uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.oldest = max(s.oldest, below)
}

// Stall delays all responses until resume is called. Connections stay open.
func (s *Server) Stall() (resume func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stalls++; s.stalls == 1 {
		s.resumed = make(chan struct{})
	}
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.stalls--; s.stalls == 0 {
			close(s.resumed)
		}
	})
}

// Delay delays each response by d, like a distant server.
func (s *Server) Delay(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.delay = d
}

// Tell sets the kind of false responses. [Truth] ends them.
func (s *Server) Tell(lie Lie) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lie = lie
}

// Asked returns the number of queries since the last call, by their names in the schema.
func (s *Server) Asked() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	asked := s.asked
	s.asked = make(map[string]int)
	return asked
}

// Addr returns the address of the Server, even after Stop.
func (s *Server) Addr() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.addr.String()
}

// Config returns the global.config.json of a network with these servers. Its blocks are those of s.
func (s *Server) Config(others ...*Server) []byte {
	type object = map[string]any
	var servers []object
	for _, one := range append([]*Server{s}, others...) {
		one.mu.Lock()
		ip := one.addr.IP.To4()
		key := one.key.Public().(ed25519.PublicKey)
		servers = append(servers, object{
			"ip":   int32(ip[0])<<24 | int32(ip[1])<<16 | int32(ip[2])<<8 | int32(ip[3]),
			"port": one.addr.Port,
			"id":   object{"@type": "pub.ed25519", "key": base64.StdEncoding.EncodeToString(key)},
		})
		one.mu.Unlock()
	}
	block := func(seqNo uint32, root, file [32]byte) object {
		return object{
			"workchain": masterchain, "shard": int64(-1 << 63), "seqno": seqNo,
			"root_hash": root[:], "file_hash": file[:],
		}
	}
	c := s.chain
	validator := object{"@type": "validator.config.global", "zero_state": block(0, c.zeroRoot, c.zeroFile)}
	if validator["init_block"] = validator["zero_state"]; c.init.SeqNo > 0 {
		validator["init_block"] = block(c.init.SeqNo, c.init.Root, c.init.File)
	}
	config := object{"@type": "config.global", "liteservers": servers, "validator": validator}
	data, err := json.MarshalIndent(config, "", "  ")
	if err != nil {
		panic(err) // numbers and bytes are always valid JSON
	}
	return data
}
