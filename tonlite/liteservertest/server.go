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

// A Server is a lite server that serves a chain on 127.0.0.1. Its methods may be called
// concurrently.
type Server struct {
	chain     *Chain
	key       ed25519.PrivateKey
	addr      *net.TCPAddr
	netListen func(network, addr string) (net.Listener, error)

	mu           sync.Mutex
	listener     net.Listener // nil while the Server is stopped
	conns        map[net.Conn]bool
	head         uint32
	oldest       uint32
	lost         [2]uint32     // set by Lose
	oldestShards uint32        // set by ForgetShards
	newestShards uint32        // set by LagShards, or 0
	grown        chan struct{} // closed when the head moves
	stalls       int
	resumed      chan struct{} // closed when the last stall ends
	delay        time.Duration
	dataWait     time.Duration // set by DelayData
	newWait      time.Duration // set by DelayNew
	lackWait     time.Duration // set by DelayMissing
	waitWait     time.Duration // set by DelayWaiting
	lie          Lie
	rejected     []string // kinds of queries, set by Reject
	asked        map[string]int

	running sync.WaitGroup
}

// Start starts a Server that serves all blocks of chain. Call Stop when you no longer need the
// Server.
func Start(chain *Chain) (*Server, error) { return StartOn(chain, net.Listen) }

// StartOn is like [Start], but uses listen, as the function of package net, to accept connections. The
// address of the listener must be a [net.TCPAddr]. Thus a test with a network in memory can use
// package synctest.
func StartOn(chain *Chain, listen func(network, addr string) (net.Listener, error)) (*Server, error) {
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		return nil, err
	}
	s := &Server{
		chain: chain, key: key, netListen: listen, conns: make(map[net.Conn]bool),
		head: chain.last, oldest: chain.first, grown: make(chan struct{}),
		asked: make(map[string]int),
	}
	for {
		// The port is outside the range that outgoing connections use. Otherwise an outgoing connection
		// could take the port while the Server is stopped.
		switch err := s.listen(fmt.Sprintf("127.0.0.1:%d", 10_000+rand.IntN(20_000))); {
		case err == nil:
			return s, nil
		case !errors.Is(err, syscall.EADDRINUSE):
			return nil, err
		}
	}
}

func (s *Server) listen(addr string) error {
	l, err := s.netListen("tcp4", addr)
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
		if s.listener != l { // the Server was stopped meanwhile
			s.mu.Unlock()
			_ = conn.Close()
			return
		}
		s.conns[conn] = true
		s.running.Go(func() {
			_ = lite.Serve(conn, s.key, s.answer) // returns when the connection ends
			s.mu.Lock()
			delete(s.conns, conn)
			s.mu.Unlock()
		})
		s.mu.Unlock()
	}
}

// Stop closes the listener and all connections. Calling Stop again has no effect.
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
		return errors.New("liteservertest: Restart was called, but the Server is not stopped")
	}
	return s.listen(addr)
}

// Interrupt closes all connections, as a network failure would. The Server still accepts new
// connections.
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

// Advance makes the masterchain block with the given seq_no the newest one that the Server has. A
// lower seq_no than before simulates a server that lags.
func (s *Server) Advance(seqNo uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.head = seqNo
	close(s.grown)
	s.grown = make(chan struct{})
}

// Forget deletes all masterchain blocks with a lower seq_no than the given one.
func (s *Server) Forget(below uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.oldest = max(s.oldest, below)
}

// Lose deletes the masterchain blocks with a seq_no in [from, to], so that the Server has older and newer blocks. A
// later call restores these blocks and deletes others.
func (s *Server) Lose(from, to uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost = [2]uint32{from, to}
}

// ForgetShards deletes all shard blocks to which masterchain blocks with a lower seq_no than the given one commit, but
// no masterchain blocks.
func (s *Server) ForgetShards(below uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.oldestShards = max(s.oldestShards, below)
}

// LagShards makes the Server announce and send all masterchain blocks, but only the shard blocks to which those up to
// the given seq_no commit, and not yet answer queries that wait for later masterchain blocks. A node that processes
// shard blocks too slowly does so. LagShards(0) ends this.
func (s *Server) LagShards(seqNo uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.newestShards = seqNo
	close(s.grown)
	s.grown = make(chan struct{})
}

// newest returns the seq_no of the newest masterchain block whose shard blocks the Server has. Call it with s.mu held.
func (s *Server) newest() uint32 {
	if s.newestShards == 0 {
		return s.head
	}
	return min(s.head, s.newestShards)
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

// Delay delays each response by d, as a distant server would.
func (s *Server) Delay(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.delay = d
}

// DelayData delays each response by d, except those that contain only the id of a block. Thus the
// Server announces new blocks at once, but is slow otherwise.
func (s *Server) DelayData(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dataWait = d
}

// DelayNew delays by d each response to a query that waited for a new block.
func (s *Server) DelayNew(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.newWait = d
}

// DelayMissing delays by d each response that says that the Server does not have a block.
func (s *Server) DelayMissing(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lackWait = d
}

// DelayWaiting delays by d each response to a query that waits for a block, even if the Server has the block.
func (s *Server) DelayWaiting(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waitWait = d
}

// SetLie makes the Server send false responses of the given kind. SetLie([Truth]) makes it send true
// responses again.
func (s *Server) SetLie(lie Lie) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lie = lie
}

// Reject makes the Server reject queries of the given kinds, as a server does that limits the rate of
// its clients, and no others. The kinds are named as in the result of Asked.
func (s *Server) Reject(kinds ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rejected = kinds
}

// Asked returns the number of queries that the Server has received since the last call of Asked.
// The keys are the names of the queries in the protocol's schema, such as getBlock.
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

// Config returns the global.config.json of a network whose lite servers are s and others. The
// zero_state and the init_block are those of the chain that s serves.
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
