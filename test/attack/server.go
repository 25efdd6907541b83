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
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
	"github.com/graphql-go/handler"
)

// These are the kinds of servers. All serve the same chain and the same projects with the same http.Server settings.
const (
	strong    = "strong"    // chaingql with default limits and a KeepAliveInterval of 3 s
	patient   = "patient"   // chaingql with all defaults; idle sockets need no pong for 30 s
	confined  = "confined"  // like patient, but exits if it needs more than the worst-case memory in docs/limits.md
	small     = "small"     // like patient, with the limits and GOMEMLIMIT of a size in docs/operations.md
	renewed   = "renewed"   // like strong, with a chain that has an epoch
	unlimited = "unlimited" // chaingql with all limits turned off
	epochless = "epochless" // like strong, with a Backend that ignores the epochs of cursors
	graphqlGo = "graphqlgo" // graphql-go/handler with the same schema, set up as in its README
)

const (
	secret        = "s3cret"
	epoch         = "mk2p9q" // of the chain of a renewed server
	richAddress   = "0:1111111111111111111111111111111111111111111111111111111111111111"
	roundInterval = 100 * time.Millisecond // time between two rounds of blocks
	history       = 3000                   // number of blocks before the first request
	firstMaster   = 3000                   // sequence number of the masterchain block before the history
)

// A state holds the resource usage of a server.
type state struct {
	RSS, Peak         int64 // bytes; Peak is the maximum since the last reset
	Goroutines, Files int
	Stalled           int64 // maximum number of blocked Balance calls since the last reset
}

// serve runs a server under attack on 127.0.0.1 until its standard input is closed. Its first line
// of output contains its addresses. It replies to each line of input, which is one of these commands:
//   - "state" returns the current state
//   - "reset" resets the peaks and returns the state
//   - "stacks" returns the stacks of all goroutines
func serve(kind string) error {
	switch kind {
	case confined:
		if err := limitMemory(); err != nil {
			return err
		}
	case small:
		s, err := documentedSize()
		if err != nil {
			return err
		}
		debug.SetMemoryLimit(int64(s.soft))
	}
	chain, err := newChain(kind)
	if err != nil {
		return err
	}
	backend := &stalling{Chain: chain}
	h, err := newHandler(kind, backend)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	chaingql.Mount(mux, "/{project}/graphql", h)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	quiet := slog.New(slog.DiscardHandler)
	server := &http.Server{
		Handler: mux, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 5 * time.Second,
		ErrorLog: slog.NewLogLogger(quiet.Handler(), slog.LevelWarn),
	}
	// HTTP/2 has a separate listener, because a server that accepts HTTP/2 parses malformed HTTP/1
	// requests differently.
	second, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	http2 := &http.Server{
		Handler: mux, ReadHeaderTimeout: server.ReadHeaderTimeout, IdleTimeout: server.IdleTimeout,
		ErrorLog: server.ErrorLog,
	}
	http2.Protocols = new(http.Protocols)
	http2.Protocols.SetUnencryptedHTTP2(true)
	http2.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: 100}
	secure, wrapped := serveWrapped(mux)
	fmt.Println(listener.Addr(), second.Addr(), secure, wrapped)
	failed := make(chan error, 4)
	go func() { failed <- server.Serve(smallBuffers{listener}) }()
	go func() { failed <- http2.Serve(smallBuffers{second}) }()
	go func() { failed <- grow(chain) }()
	go func() { failed <- control(backend) }()
	return <-failed
}

// smallBuffers is a listener that sets small write buffers on its connections. If a peer does not
// read, writes to it therefore stall soon. As a side effect, the kernel may delay acknowledgments in a
// large response by 40 ms each.
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
		Authorizer: rateLimiter{chaingql.StaticProjects{
			"open": {}, "known": {Secret: secret}, "locked": {Secret: secret, RequireSecret: true},
		}},
		Schema:            hostFields(),
		KeepAliveInterval: 3 * time.Second, // short, so that a test sees peers without pongs being closed
		Logger:            slog.New(slog.DiscardHandler),
	}
	switch kind {
	case strong, renewed:
		return chaingql.New(chain, opts), nil
	case epochless:
		return chaingql.New(anyEpoch{chain}, opts), nil
	case patient, confined:
		opts.KeepAliveInterval = 0
		return chaingql.New(chain, opts), nil
	case small:
		s, err := documentedSize()
		opts.KeepAliveInterval, opts.Limits = 0, s.limits
		return chaingql.New(chain, opts), err
	case graphqlGo:
		debug.SetMaxStack(64 << 20) // so that infinite recursion ends the process soon
		schema := chaingql.New(chain, opts).Schema()
		return handler.New(&handler.Config{Schema: &schema, Pretty: false}), nil
	case unlimited:
		const off = -1
		opts.Limits = chaingql.Limits{
			BodyBytes: off, DocumentBytes: off, Tokens: off, Depth: off, Fields: off, Aliases: off, Directives: off,
			FieldRepeats: off, Operations: off, Fragments: off, Variables: off, ListItems: off, ResponseBytes: off,
			CacheBytes: off, MessageBytes: off, Connections: off, MessageRate: off, SocketSubscriptions: off,
			SocketQueries: off, Requests: off,
			BackendCalls: off, QueryBlocks: off, IDBytes: off, Subscriptions: off, SubscriptionBytes: off,
			VariableBytes: off, InFlight: off,
			PendingBodyBytes: off, PendingResponseBytes: off, PendingSocketBytes: off,
			BodyTimeout: off, WriteTimeout: off, BackendTimeout: off,
		}
		return chaingql.New(chain, opts), nil
	}
	return nil, fmt.Errorf("unknown kind of server: %q", kind)
}

// An anyEpoch is a Backend without an epoch that accepts the cursors of every epoch.
type anyEpoch struct{ chaingql.Backend }

func (b anyEpoch) Blocks(ctx context.Context, q chaingql.BlocksQuery) ([]chaingql.Block, error) {
	for _, cursor := range []*chaingql.Cursor{&q.After, &q.Before} {
		plain, _, _ := strings.Cut(string(*cursor), "~")
		*cursor = chaingql.Cursor(plain)
	}
	return b.Backend.Blocks(ctx, q)
}

// A rateLimiter authorizes requests like StaticProjects, but rejects those to limitedProject with a
// RateLimitError.
type rateLimiter struct{ chaingql.StaticProjects }

const limitedProject = "limited"

func (g rateLimiter) Authorize(ctx context.Context, c chaingql.Credentials) (context.Context, error) {
	if c.Project == limitedProject {
		return nil, chaingql.RateLimitError{RetryAfter: 1500 * time.Millisecond}
	}
	return g.StaticProjects.Authorize(ctx, c)
}

// A shard is a shard of the chain. Each round appends one block to it.
type shard struct {
	workchain int32
	prefix    uint64
	seqNo     uint32
}

// shards lists the shards of the chain. The masterchain is the last element, because its block ends
// each round.
var shards = []*shard{{0, 0x4000000000000000, 4000}, {0, 0xc000000000000000, 5000},
	{-1, 0x8000000000000000, firstMaster}}

func newChain(kind string) (*memchain.Chain, error) {
	chain := memchain.New()
	if kind == renewed {
		chain.Replace(epoch)
	}
	rich, err := chaingql.ParseAddress(richAddress)
	if err != nil {
		return nil, err
	}
	chain.SetBalance(rich, big.NewInt(1234567890123456789))
	largest := new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 127), big.NewInt(1))
	chain.SetBalance(chaingql.Address{Workchain: math.MinInt32, ID: sha256.Sum256([]byte("richest"))}, largest)
	for range history / len(shards) {
		if err := chain.Append(nextRound(time.Now())...); err != nil {
			return nil, err
		}
	}
	return chain, nil
}

// roundBefore returns the cursor of the last block in the round that was appended n rounds before the
// first request.
func roundBefore(n uint32) chaingql.Cursor {
	master := shards[len(shards)-1]
	seqNo := firstMaster + history/uint32(len(shards)) - n
	return chaingql.ChainOrder(master.workchain, master.prefix, seqNo, seqNo)
}

// grow appends a round of blocks to the chain every roundInterval.
func grow(chain *memchain.Chain) error {
	for now := range time.Tick(roundInterval) {
		if err := chain.Append(nextRound(now)...); err != nil {
			return err
		}
	}
	return nil
}

// nextRound returns the next block of each shard in cursor order.
func nextRound(now time.Time) []chaingql.Block {
	master := shards[len(shards)-1].seqNo + 1
	blocks := make([]chaingql.Block, len(shards))
	for i, s := range shards {
		s.seqNo++
		blocks[i] = chaingql.Block{
			Workchain: s.workchain, Shard: s.prefix, SeqNo: s.seqNo, Time: now,
			Hash:   hashOf(s, s.seqNo),
			Cursor: chaingql.ChainOrder(s.workchain, s.prefix, s.seqNo, master),
		}
	}
	slices.SortFunc(blocks, func(a, b chaingql.Block) int { return cmp.Compare(a.Cursor, b.Cursor) })
	return blocks
}

// hashOf returns the hash of a block.
func hashOf(s *shard, seqNo uint32) chaingql.Hash {
	return sha256.Sum256(fmt.Appendf(nil, "%d:%x:%d", s.workchain, s.prefix, seqNo))
}

// control executes the commands on standard input until the input is closed.
func control(backend *stalling) error {
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		switch lines.Text() {
		case "state", "reset":
			if lines.Text() == "reset" {
				backend.maxBlocked.Store(0)
				if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil {
					return err
				}
			}
			s, err := current()
			if err != nil {
				return err
			}
			s.Stalled = backend.maxBlocked.Load()
			if err := json.NewEncoder(os.Stdout).Encode(s); err != nil {
				return err
			}
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

// current frees unused memory and returns the resource usage of this process.
func current() (state, error) {
	runtime.GC() // FreeOSMemory runs a second collection, which empties sync.Pools
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
