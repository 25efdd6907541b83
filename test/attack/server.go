package attack

import (
	"bufio"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"math/big"
	"net"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
	"github.com/graphql-go/handler"
)

// Kinds of servers. All have the same chain, the same projects and the same
// http.Server around them.
const (
	strong    = "strong"    // chaingql as it is, but for the rhythm of its keep-alives
	patient   = "patient"   // chaingql as it is: idle sockets need no pong for 30 s
	confined  = "confined"  // chaingql as it is, which dies beyond the worst case of docs/limits.md
	unlimited = "unlimited" // chaingql with all limits turned off
	graphqlGo = "graphqlgo" // graphql-go/handler over the same schema, as its README says
)

const (
	secret      = "s3cret"
	richAddress = "0:1111111111111111111111111111111111111111111111111111111111111111"
	pace        = 100 * time.Millisecond // of the chain
	history     = 3000                   // blocks before the first request
	firstMaster = 3000                   // the masterchain block before all of them
)

// A state is what a server holds.
type state struct {
	RSS, Peak         int64 // bytes; the peak is since the last "anew"
	Goroutines, Files int
	Stalled           int64 // calls of the backend that hang, at most at once since then
}

// serve is the program of a server under attack: it listens on 127.0.0.1, says
// where in its first line, and answers each line of its input until that ends:
// "state" with a state, "anew" with one from which on its peaks count, "spent" with
// the processor time it has taken, "stacks" with all goroutines.
func serve(kind string) error {
	if kind == confined {
		if err := confine(); err != nil {
			return err
		}
	}
	chain, err := newChain()
	if err != nil {
		return err
	}
	backend := &stalling{Chain: chain}
	h, err := newHandler(kind, backend)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/{project}/graphql", h)
	mux.Handle("/{project}/graphql/{$}", h)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	quiet := slog.New(slog.DiscardHandler)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 5 * time.Second, ErrorLog: slog.NewLogLogger(quiet.Handler(), slog.LevelWarn)}
	// An address of its own: net/http reads malformed requests in another way where
	// they might be HTTP/2.
	second, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	http2 := &http.Server{Handler: mux, ReadHeaderTimeout: server.ReadHeaderTimeout, IdleTimeout: server.IdleTimeout, ErrorLog: server.ErrorLog}
	http2.Protocols = new(http.Protocols)
	http2.Protocols.SetUnencryptedHTTP2(true)
	http2.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: 100}
	fmt.Println(listener.Addr(), second.Addr())
	failed := make(chan error, 4)
	go func() { failed <- server.Serve(smallBuffers{listener}) }()
	go func() { failed <- http2.Serve(smallBuffers{second}) }()
	go func() { failed <- grow(chain) }()
	go func() { failed <- control(backend) }()
	return <-failed
}

// smallBuffers makes connections that take little before a write waits: a peer
// that does not read is noticed soon. A large answer may have to wait for the
// kernel's late acknowledgements with them, 40 ms each.
type smallBuffers struct{ net.Listener }

func (l smallBuffers) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetWriteBuffer(32 << 10)
	}
	return c, err
}

func newHandler(kind string, chain chaingql.Backend) (http.Handler, error) {
	opts := &chaingql.Options{
		Authorizer: gate{chaingql.StaticProjects{
			"open": {}, "known": {Secret: secret}, "locked": {Secret: secret, RequireSecret: true},
		}},
		KeepAlive: 3 * time.Second, // so that silent peers are noticed soon, and busy ones are not taken for them
		Logger:    slog.New(slog.DiscardHandler),
	}
	switch kind {
	case strong:
		return chaingql.New(chain, opts), nil
	case patient, confined:
		opts.KeepAlive = 0
		return chaingql.New(chain, opts), nil
	case graphqlGo:
		debug.SetMaxStack(64 << 20) // enough to see it die
		schema := chaingql.New(chain, opts).Schema()
		return handler.New(&handler.Config{Schema: &schema, Pretty: false}), nil
	case unlimited:
		const off = -1
		opts.Limits = chaingql.Limits{
			BodyBytes: off, DocumentBytes: off, Tokens: off, Depth: off, Fields: off, Aliases: off, Directives: off,
			SameName: off, Operations: off, Fragments: off, Variables: off, ListItems: off, AnswerBytes: off,
			CacheBytes: off, MessageBytes: off, Sockets: off, MessageRate: off, SocketSubscriptions: off, SocketQueries: off, Requests: off,
			Calls: off, Blocks: off, IDBytes: off, Subscriptions: off, SubscriptionBytes: off, VariableBytes: off, InFlight: off,
			PendingBodyBytes: off, PendingAnswerBytes: off, PendingSocketBytes: off,
			BodyTimeout: off, WriteTimeout: off, BackendTimeout: off,
		}
		return chaingql.New(chain, opts), nil
	}
	return nil, fmt.Errorf("attack: no server of kind %q", kind)
}

// A gate is where one project's clients always come too often.
type gate struct{ chaingql.StaticProjects }

const limitedProject = "limited"

func (g gate) Authorize(ctx context.Context, c chaingql.Credentials) (context.Context, error) {
	if c.Project == limitedProject {
		return nil, chaingql.RateLimited{After: 1500 * time.Millisecond}
	}
	return g.StaticProjects.Authorize(ctx, c)
}

// A shard grows by a block in each round.
type shard struct {
	workchain int32
	prefix    uint64
	seqNo     uint32
}

// shards are those of the chain, the masterchain last: a round ends with it.
var shards = []*shard{{0, 0x4000000000000000, 4000}, {0, 0xc000000000000000, 5000}, {-1, 0x8000000000000000, firstMaster}}

func newChain() (*memchain.Chain, error) {
	chain := memchain.New()
	rich, err := chaingql.ParseAddress(richAddress)
	if err != nil {
		return nil, err
	}
	chain.SetBalance(rich, big.NewInt(1234567890123456789))
	most := new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 127), big.NewInt(1))
	chain.SetBalance(chaingql.Address{Workchain: math.MinInt32, ID: sha256.Sum256([]byte("richest"))}, most)
	for range history / len(shards) {
		if err := chain.Append(round(time.Now())...); err != nil {
			return nil, err
		}
	}
	return chain, nil
}

// roundBefore is the end of the round that was so many before the first request.
func roundBefore(n uint32) chaingql.Cursor {
	master := shards[len(shards)-1]
	seqNo := firstMaster + history/uint32(len(shards)) - n
	return chaingql.ChainOrder(master.workchain, master.prefix, seqNo, seqNo)
}

// grow appends a round of blocks at each beat.
func grow(chain *memchain.Chain) error {
	for now := range time.Tick(pace) {
		if err := chain.Append(round(now)...); err != nil {
			return err
		}
	}
	return nil
}

func round(now time.Time) []chaingql.Block {
	master := shards[len(shards)-1].seqNo + 1
	blocks := make([]chaingql.Block, len(shards))
	for i, s := range shards {
		s.seqNo++
		blocks[i] = chaingql.Block{
			Workchain: s.workchain, Shard: s.prefix, SeqNo: s.seqNo, Time: now,
			Hash:   sha256.Sum256(fmt.Appendf(nil, "%d:%x:%d", s.workchain, s.prefix, s.seqNo)),
			Cursor: chaingql.ChainOrder(s.workchain, s.prefix, s.seqNo, master),
		}
	}
	slices.SortFunc(blocks, func(a, b chaingql.Block) int { return cmp.Compare(a.Cursor, b.Cursor) })
	return blocks
}

// control answers whoever started the process; it ends when that has ended.
func control(backend *stalling) error {
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		switch lines.Text() {
		case "state", "anew":
			if lines.Text() == "anew" {
				backend.most.Store(0)
				if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil {
					return err
				}
			}
			s, err := current()
			if err != nil {
				return err
			}
			s.Stalled = backend.most.Load()
			if err := json.NewEncoder(os.Stdout).Encode(s); err != nil {
				return err
			}
		case "spent":
			var use syscall.Rusage
			if err := syscall.Getrusage(syscall.RUSAGE_SELF, &use); err != nil {
				return err
			}
			fmt.Println(time.Duration(use.Utime.Nano() + use.Stime.Nano()))
		case "stacks":
			var text strings.Builder
			if err := pprof.Lookup("goroutine").WriteTo(&text, 1); err != nil {
				return err
			}
			fmt.Printf("%q\n", text.String())
		}
	}
	return nil
}

// current gives back what memory it can and says what is left.
func current() (state, error) {
	runtime.GC() // what pools hold goes with the second collection
	debug.FreeOSMemory()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return state{}, err
	}
	s := state{Goroutines: runtime.NumGoroutine()}
	for line := range strings.Lines(string(status)) {
		var kilobytes int64
		if n, _ := fmt.Sscanf(line, "VmRSS: %d kB", &kilobytes); n == 1 {
			s.RSS = kilobytes << 10
		}
		if n, _ := fmt.Sscanf(line, "VmHWM: %d kB", &kilobytes); n == 1 {
			s.Peak = kilobytes << 10
		}
	}
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return state{}, err
	}
	s.Files = len(files)
	return s, nil
}
