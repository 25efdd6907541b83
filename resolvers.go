package chaingql

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/chaingql/chaingql/internal/blocklog"
	"github.com/chaingql/chaingql/internal/plan"
	"github.com/chaingql/chaingql/internal/xsync"
)

// resolvers turn arguments into calls of the Backend and its answers into
// values of the schema. They know nothing of transports.
type resolvers struct {
	backend   Backend
	batcher   BalanceBatcher // the backend, where it is one
	endpoints []string
	timeout   time.Duration // of one call of the backend
	recent    *blocklog.Log[Block]
	reads     xsync.Group[reading, []Block]
	turns     turns
	limit     func(ctx context.Context, name string)           // tells that one was hit
	reading   func(ctx, asker context.Context) context.Context // for a call of Blocks
	down      atomic.Pointer[time.Time]                        // since when the stream has been failing or silent; nil while it is well
}

// A call is the source of the Query type: the request that asks. One goroutine
// runs it.
type call struct {
	host, path string // where it came to
	op         *plan.Bound
	first      account             // of those it asks for; most ask for no other
	page       page                // likewise
	balances   map[Address]balance // looked up so far, of several accounts; nil until one is asked for
	err        error               // why they could not be looked up together
	busy       bool                // a call of the Backend had to be left out
	failed     bool                // the answer has errors
	lasting    bool                // the answer may be kept, and nothing in it may be another when the next block has come
	stored     bool                // the answer has blocks that were read from the Backend
}

// Pages that clients get; the Backend is asked for one block more, to know
// whether there are more.
const pageSize = 50

// The blocks that tell the chain's usual pace.
const paceBlocks = 10

type account struct {
	address Address
	call    *call // nil where graphql-go asks

	asked  bool // for its balance, which several aliases may show
	amount *big.Int
	err    error
}

// A balance is what looking one up came to.
type balance struct {
	amount *big.Int
	err    error
}

type info struct {
	now, lastBlock time.Time
	latency        time.Duration
	endpoints      []string
}

// A page is a connection and its pageInfo; edges are the list in it.
type page struct {
	blocks               []Block
	hasNext, hasPrevious bool
}

type edges page

func (e *edges) Len() int     { return len(e.blocks) }
func (e *edges) At(i int) any { return &e.blocks[i] }

func badInput(format string, args ...any) error {
	return &plan.Error{Message: fmt.Sprintf(format, args...), Code: plan.CodeInput}
}

func (r *resolvers) account(_ context.Context, src any, args plan.Args) (any, error) {
	addr, err := ParseAddress(args[0].(string))
	if err != nil {
		return nil, badInput("Invalid account address")
	}
	c, _ := src.(*call)
	if c != nil && c.first.call == nil {
		c.first = account{address: addr, call: c}
		return &c.first, nil
	}
	return &account{address: addr, call: c}, nil
}

func (r *resolvers) balance(ctx context.Context, src any, args plan.Args) (any, error) {
	a := src.(*account)
	if !a.asked {
		if a.call.refuses() {
			return nil, errBusy
		}
		if a.call != nil {
			a.call.lasting = false
		}
		a.asked, a.err = true, errPanicked // stands if what follows panics
		a.amount, a.err = r.amount(ctx, a)
		a.err = a.call.note(a.err)
	}
	switch amount := a.amount; {
	case a.err != nil:
		return nil, a.err
	case amount.Sign() < 0:
		return nil, fmt.Errorf("chaingql: the Backend returned %v, a negative balance", amount)
	}
	if args[0] == "DEC" {
		return decimal{a.amount}, nil
	}
	return hexadecimal{a.amount}, nil
}

// The arguments of blocks, in the order of the schema's table.
const (
	argWorkchain = iota
	argShard
	argFirst
	argAfter
	argLast
	argBefore
)

func (r *resolvers) blocks(ctx context.Context, src any, args plan.Args) (any, error) {
	q, err := blocksQuery(args)
	if err != nil {
		return nil, err
	}
	size := max(q.First, q.Last)
	if q.First > 0 {
		q.First++
	} else {
		q.Last++
	}
	c, _ := src.(*call)
	blocks, w, err := r.read(ctx, c, q)
	if err != nil {
		return nil, err
	}
	var p *page
	if c != nil && c.page.blocks == nil {
		p = &c.page
	} else {
		p = new(page)
	}
	if c != nil && c.lasting {
		c.lasting = r.final(q, blocks, len(blocks) > size, w)
	}
	p.blocks = blocks
	if len(blocks) > size {
		if q.First > 0 {
			p.blocks, p.hasNext = blocks[:size], true
		} else {
			p.blocks, p.hasPrevious = blocks[len(blocks)-size:], true
		}
	}
	return p, nil
}

func (r *resolvers) deadline(ctx context.Context) (context.Context, context.CancelFunc) {
	t := xsync.WithTimeout(ctx, r.timeout)
	return t, t.Stop
}

// explain tells a call that ran out of time from one that failed.
func (r *resolvers) explain(ctx context.Context, err error) error {
	var told *plan.Error
	if errors.Is(ctx.Err(), context.DeadlineExceeded) && !errors.As(err, &told) {
		r.limit(ctx, "BackendTimeout")
		return late()
	}
	return err
}

// blocksQuery checks the arguments of blocks. First or Last is then at most
// pageSize.
func blocksQuery(args plan.Args) (BlocksQuery, error) {
	var q BlocksQuery
	if n, ok := args[argWorkchain].(int); ok {
		workchain := int32(n)
		q.Workchain = &workchain
	}
	if text, ok := args[argShard].(string); ok {
		shard, err := parseShard(text)
		if err != nil {
			return q, err
		}
		q.Shard = &shard
	}
	first, isFirst := args[argFirst].(int)
	last, isLast := args[argLast].(int)
	after, isAfter := args[argAfter].(string)
	before, isBefore := args[argBefore].(string)
	q.After, q.Before = plainCursor(after), plainCursor(before)
	switch {
	case isFirst && isLast:
		return q, badInput(`"first" and "last" shouldn't be used simultaneously`)
	case isFirst && isBefore:
		return q, badInput(`"first" and "before" shouldn't be used simultaneously`)
	case isLast && isAfter:
		return q, badInput(`"last" and "after" shouldn't be used simultaneously`)
	case isFirst && first < 1:
		return q, badInput(`"first" should not be less than 1`)
	case isLast && last < 1:
		return q, badInput(`"last" should not be less than 1`)
	case isFirst:
		q.First = min(first, pageSize)
	case isLast:
		q.Last = min(last, pageSize)
	case isAfter:
		q.First = pageSize
	default:
		q.Last = pageSize
	}
	return q, nil
}

func parseShard(s string) (uint64, error) {
	if len(s) == 16 {
		if n, err := strconv.ParseUint(s, 16, 64); err == nil {
			return n, nil
		}
	}
	return 0, badInput("Invalid shard: 16 hex digits expected")
}

// appendShard writes a shard's prefix in 16 hex digits.
func appendShard(dst []byte, shard uint64) []byte { return appendHex(dst, shard) }

func (r *resolvers) info(ctx context.Context, src any, _ plan.Args) (any, error) {
	c, _ := src.(*call)
	workchain := int32(masterchain)
	blocks, _, err := r.read(ctx, c, BlocksQuery{Workchain: &workchain, Last: paceBlocks})
	if err != nil {
		return nil, err
	}
	i := &info{now: time.Now(), endpoints: r.endpoints}
	if c != nil && len(i.endpoints) == 0 {
		i.endpoints = []string{c.host + c.path}
	}
	if len(blocks) == 0 {
		return i, nil
	}
	i.lastBlock = blocks[len(blocks)-1].Time
	// A block that is replayed, or came late, is as fresh as its arrival; and
	// while the stream fails nothing is, whatever the backend has.
	fresh := i.lastBlock
	if heard := r.recent.Window().Arrived; heard.After(fresh) {
		fresh = heard
	}
	if down := r.down.Load(); down != nil && down.Before(fresh) {
		fresh = *down
	}
	usual := time.Duration(0)
	if len(blocks) > 1 {
		usual = i.lastBlock.Sub(blocks[0].Time) / time.Duration(len(blocks)-1)
	}
	i.latency = max(0, i.now.Sub(fresh)-usual)
	return i, nil
}
