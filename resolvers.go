package chaingql

import (
	"context"
	"fmt"
	"math/big"
	"net/http"
	"strconv"
	"time"

	"github.com/chaingql/chaingql/internal/blocklog"
	"github.com/chaingql/chaingql/internal/plan"
	"github.com/chaingql/chaingql/internal/xsync"
)

// resolvers holds the resolvers of the built-in fields. They translate arguments into Backend calls, and the results of
// the calls into values of the schema. They do not depend on transports.
type resolvers struct {
	backend   Backend
	batcher   BalanceBatcher // the backend, if it is a BalanceBatcher; otherwise nil
	hashes    HashIndex      // likewise
	numbers   SeqNoIndex
	times     TimeIndex
	endpoints []string
	timeout   time.Duration // of one Backend call
	chains    *chains
	waiting   *places       // of queries that wait for the Backend
	held      *xsync.Budget // the memory of their responses so far
	slots     inFlight      // for calls of the Backend

	// limit reports that a limit was hit. reading returns the context for a call of Blocks.
	limit   func(ctx context.Context, name string)
	reading func(ctx, asker context.Context) context.Context
}

// A call is the source of the Query type. It holds the state of one query, and is used by one goroutine.
type call struct {
	request  *http.Request // nil on a socket
	endpoint string        // of a socket
	remote   string        // the network address of the client of a socket
	by       caller        // describes the client to hooks and the log
	op       *plan.Bound
	chain    *chain                 // the chain from which the query reads all its blocks; nil before the first read
	first    account                // the first account in the query; most queries have no other
	page     page                   // the first page in the query; most queries have no other
	window   blocklog.Window[Block] // from which the last page was read; empty if it is from the Backend
	balances map[Address]balance    // the balances read so far, if the query has several accounts; otherwise nil
	err      error                  // the error of reading the balances together
	slot     callSlot               // of the Backend call in progress
	calls    int                    // how often the query has waited for the Backend
	waits    takenPlace             // while the query waits for the Backend
	held     xsync.Reservation      // the response so far, while the query waits for the Backend
	many     *places                // of queries for many blocks
	inMany   takenPlace             // in many, if this is one
	refused  error                  // why the query does not run, or does not wait for the Backend again
	failed   bool                   // the response has errors
	final    bool                   // the response is cacheable, and no later block can change it
	checked  bool                   // a page was checked whether it is final, which a query does only once
	stored   bool                   // the response has blocks that were read from the Backend
}

// pageSize is the maximum number of blocks in a page that a client receives. One more block is read from the Backend,
// to learn whether there are more.
const pageSize = 50

// paceBlocks is the number of blocks from which the usual interval between blocks is computed.
const paceBlocks = 10

type account struct {
	address Address
	call    *call

	asked  bool // the balance has been requested, so amount and err are set; several aliases may use them
	amount *big.Int
	err    error
}

// A balance is the result of reading the balance of one account.
type balance struct {
	amount *big.Int
	err    error
}

type info struct {
	now, lastBlock time.Time
	latency        time.Duration
	endpoints      []string
}

func badInput(message string) error { return &plan.Error{Message: message, Code: plan.CodeInput} }

func (r *resolvers) account(_ context.Context, src any, args plan.Args) (any, error) {
	addr, err := addressOf(args[0])
	if err != nil {
		return nil, badInput("Invalid account address")
	}
	c := callOf(src)
	if c.first.call == nil {
		c.first = account{address: addr, call: c}
		return &c.first, nil
	}
	return &account{address: addr, call: c}, nil
}

// addressOf parses an address, which is a string or a *plan.Text.
func addressOf(arg any) (Address, error) {
	if text, ok := arg.(*plan.Text); ok {
		return parseAddress([]byte(*text))
	}
	return ParseAddress(arg.(string))
}

func (r *resolvers) balance(ctx context.Context, src any, args plan.Args) (any, error) {
	a := src.(*account)
	if !a.asked {
		a.call.final = false
		a.asked, a.err = true, errPanicked // remains set if the Backend panics
		a.amount, a.err = r.amount(ctx, a)
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

// These are the indexes of the arguments of blocks in the schema's table.
const (
	argWorkchain = iota
	argShard
	argFirst
	argAfter
	argLast
	argBefore
	argInconsistent
	argMasterRange
)

func (r *resolvers) blocks(ctx context.Context, src any, args plan.Args) (any, error) {
	q, err := pageQueryOf(args)
	if err != nil {
		return nil, err
	}
	c := callOf(src)
	ch := r.chainOf(c)
	if err := ch.parseBounds(&q); err != nil {
		return nil, err
	}
	last, empty, err := r.narrow(ctx, c, &q, args[argMasterRange])
	switch {
	case err != nil:
		return nil, err
	case empty:
		c.final = false
		return new(page), nil
	}
	size := max(q.first, q.last)
	switch {
	case q.first > 0:
		q.first++
	case last == nil:
		q.last++
	}
	blocks, err := r.read(ctx, c, &q)
	if err != nil {
		return nil, err
	}
	if last != nil && (q.last > 0 || blocks.Len() < q.first) {
		blocks = with(blocks, last)
	}
	p := &c.page
	if p.blocks.Len() > 0 {
		p = new(page)
	}
	n := blocks.Len()
	if c.final {
		c.final = !c.checked && ch.final(&q, &blocks, n > size, &c.window)
		c.checked = true // the check reads hundreds of blocks, too many to repeat it for fifty pages
	}
	switch {
	case n <= size:
		p.blocks = blocks
	case q.first > 0:
		p.blocks, p.hasNext = blocks.Slice(0, size), true
	default:
		p.blocks, p.hasPrevious = blocks.Slice(n-size, n), true
	}
	p.addSuffixes(ch)
	return p, nil
}

// pageQueryOf checks the arguments of the field blocks and returns the query for the page. Its first or last is at most
// pageSize. Its cursors are those of the client, for [chain.parseBounds].
func pageQueryOf(args plan.Args) (pageQuery, error) {
	var q pageQuery
	if n, ok := args[argWorkchain].(int); ok {
		q.in.ByWorkchain, q.in.Workchain = true, int32(n)
	}
	if text, ok := args[argShard].(string); ok {
		shard, err := parseShard(text)
		if err != nil {
			return q, err
		}
		q.in.ByShard, q.in.Shard = true, shard
	}
	first, isFirst := args[argFirst].(int)
	last, isLast := args[argLast].(int)
	after, isAfter := args[argAfter].(string)
	before, isBefore := args[argBefore].(string)
	q.after, q.before = Cursor(after), Cursor(before)
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
		q.first = min(first, pageSize)
	case isLast:
		q.last = min(last, pageSize)
	case isAfter:
		q.first = pageSize
	default:
		q.last = pageSize
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

// appendShard appends the prefix of a shard as 16 hex digits.
func appendShard(dst []byte, shard uint64) []byte { return appendHex(dst, shard) }

func (r *resolvers) info(ctx context.Context, src any, _ plan.Args) (any, error) {
	c := callOf(src)
	ch := r.chainOf(c)
	blocks, err := r.read(ctx, c, &pageQuery{in: masters, last: paceBlocks})
	if err != nil {
		return nil, err
	}
	i := &info{now: time.Now(), endpoints: r.endpoints}
	switch {
	case len(i.endpoints) > 0:
	case c.request != nil:
		i.endpoints = []string{endpoint(c.request)}
	case c.endpoint != "":
		i.endpoints = []string{c.endpoint}
	}
	n := blocks.Len()
	if n == 0 {
		return i, nil
	}
	i.lastBlock = blocks.At(n - 1).Time
	// If the newest block came late, its arrival counts instead of its time. During a failure or a stall of Follow, the
	// data cannot be fresher than at its beginning, even if the Backend has newer blocks.
	fresh := i.lastBlock
	if heard := ch.blocks.Window().Arrived; heard.After(fresh) {
		fresh = heard
	}
	if down := ch.down.Load(); down != nil && down.Before(fresh) {
		fresh = *down
	}
	usual := time.Duration(0)
	if n > 1 {
		usual = i.lastBlock.Sub(blocks.At(0).Time) / time.Duration(n-1)
	}
	i.latency = max(0, i.now.Sub(fresh)-usual)
	return i, nil
}
