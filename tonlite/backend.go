package tonlite

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"sync"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/tonlite/internal/lite"
)

// A Backend reads the blocks and balances of a TON network from lite servers. [Open] returns one.
// Its methods may be called concurrently.
type Backend struct {
	servers *servers
	prover  *prover
	opts    Options // with defaults
	masters *cache[uint32, *master]
	steps   *cache[uint32, []chaingql.Block]
	headers *cache[lite.BlockID, header] // of shard blocks, for steps that take longer to read than one call may take

	pages, searches, newestPages, catchUps, longBatches, batched semaphore

	searching chan struct{} // full while a call of oldestStep searches

	mu           sync.Mutex
	head         lite.BlockID   // the newest accepted masterchain block
	heads        []acceptedHead // some of the heads before it, and the head itself
	reached      uint32         // see setReached
	moved        chan struct{}  // closed when the head moves
	following    int            // number of Follow calls that keep head up to date
	gone, oldest uint32         // see history
	checked      time.Time      // when a call last began to check gone again
	complete     uint32         // seq_no of a head whose shard blocks servers had: see unlessLate
	completed    time.Time      // when servers had them

	close sync.Once
}

var (
	_ chaingql.Backend        = (*Backend)(nil)
	_ chaingql.BalanceBatcher = (*Backend)(nil)
	_ chaingql.SeqNoIndex     = (*Backend)(nil)
	_ chaingql.Pinger         = (*Backend)(nil)
)

var errNoTrust = errors.New("tonlite: blocks cannot be proven because the configuration's init_block is missing or " +
	"is the zero state: set it to a key block that you trust, or set Options.Unproven to accept blocks without proof")

// Open connects to the lite servers in a network's global.config.json (see [ReadConfig]). Unless
// Options.Unproven is set, it proves the newest masterchain block. One working server is enough.
// Open returns an error of one line if the configuration is malformed, a server key is wrong, the
// servers belong to another network, or the proof is invalid.
//
// The proof goes through every key block since init_block. There are a few key blocks per day,
// and one response covers about a dozen of them, so Open takes longer if init_block is older. A
// malicious server can delay each response by Options.Timeout. Therefore pass a context with a
// deadline. The context applies to Open only. Call Close when you no longer need the Backend.
func Open(ctx context.Context, config []byte, opts *Options) (*Backend, error) {
	o := opts.withDefaults()
	n, err := parseConfig(config)
	if err != nil {
		return nil, err
	}
	if o.Unproven {
		o.Logger.Warn("tonlite: Options.Unproven: masterchain blocks are accepted without proof")
		n.trusted = lite.BlockID{}
	} else if n.trusted.SeqNo == 0 {
		return nil, errNoTrust
	}
	b := &Backend{
		servers: newServers(n, o), opts: o, moved: make(chan struct{}),
		masters: newCache[uint32, *master](4 * o.Cache), steps: newCache[uint32, []chaingql.Block](o.Cache),
		headers:     newCache[lite.BlockID, header](o.Cache),
		pages:       newSemaphore(maxPages, maxCalls-maxPages, errPages),
		searches:    newSemaphore(maxSearches, waitingSearches, errSearches),
		newestPages: newSemaphore(1, maxCalls, errPages), // the first page caches the blocks for the others
		catchUps:    newSemaphore(maxCatchUps, maxCalls, errPages),
		longBatches: newSemaphore(maxLongBatches, maxCalls, errBatches),
		batched:     newSemaphore(maxBatched, maxCalls*concurrency, errBatches),
		searching:   make(chan struct{}, 1),
	}
	b.prover = &prover{servers: b.servers, initBlock: n.trusted, key: n.trusted}
	if err := b.servers.connectAll(ctx); err != nil {
		b.Close()
		return nil, fmt.Errorf("tonlite: no lite server in the configuration works: %w", err)
	}
	if err := b.firstHead(ctx); err != nil {
		b.Close()
		return nil, fmt.Errorf("tonlite: read and prove the newest masterchain block: %w", err)
	}
	return b, nil
}

// Close ends all calls in progress, including Follow, and closes all connections. Shut down the
// Handler before you call Close. Calling Close again has no effect.
func (b *Backend) Close() {
	b.close.Do(func() {
		b.servers.close()
	})
}

// Balance returns the proven balance of an account as of the newest masterchain block. For an
// account outside the masterchain, this is the balance after the newest block of the account's
// shard to which that masterchain block commits. If the account does not exist, Balance returns
// [chaingql.ErrNotFound].
//
// If the servers that have the account do not have the newest masterchain block after a quarter of
// Options.Timeout, Balance uses the block that was the newest Options.Timeout ago, or one after it.
// That block was accepted as the newest at most a minute ago.
func (b *Backend) Balance(ctx context.Context, addr chaingql.Address) (*big.Int, error) {
	ctx = withUse(ctx, forBalance)
	var nano *big.Int
	err := b.atHead(ctx, func(head lite.BlockID) (err error) {
		nano, err = b.balance(ctx, head, addr)
		return err
	})
	if err != nil {
		return nil, err
	}
	return nano, nil
}

// Balances returns the balances of several accounts as of the same masterchain block, which Balance
// would use. The balance of an account that does not exist is nil. Balances reads up to 8 accounts
// concurrently. Calls for more than 12 accounts are read three at a time. If one waits for half of the
// time until its deadline, it fails with an error that wraps [chaingql.ErrUnavailable].
func (b *Backend) Balances(ctx context.Context, addrs []chaingql.Address) ([]*big.Int, error) {
	ctx = withUse(ctx, forBalance)
	many := len(addrs) > fewBalances
	if len(addrs) > someBalances {
		if err := b.longBatches.acquireSoon(ctx); err != nil {
			return nil, err
		}
		defer b.longBatches.release()
	}
	balances := make([]*big.Int, len(addrs))
	err := b.atHead(ctx, func(head lite.BlockID) error {
		return parallel(ctx, len(addrs), func(ctx context.Context, i int) error {
			if many {
				if err := b.batched.acquire(ctx); err != nil {
					return err
				}
				defer b.batched.release()
			}
			nano, err := b.balance(ctx, head, addrs[i])
			if err != nil && !errors.Is(err, chaingql.ErrNotFound) {
				return err
			}
			balances[i] = nano
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	return balances, nil
}

func (b *Backend) balance(ctx context.Context, head lite.BlockID, addr chaingql.Address) (nano *big.Int, err error) {
	block := head
	if addr.Workchain != masterchain {
		m, err := b.chain(ctx, head.SeqNo, head.SeqNo)
		if err != nil {
			return nil, err
		}
		found := false
		for _, top := range m[0].tops {
			if top.Workchain == addr.Workchain && lite.Overlap(top.Shard, prefix(addr)) {
				block, found = top, true
			}
		}
		switch {
		case !found:
			return nil, chaingql.ErrNotFound // the network has no such workchain
		case block.SeqNo == 0:
			return nil, errors.New("tonlite: the account's shard has no block yet")
		}
	}
	q := b.servers.after(head.SeqNo, lite.GetAccountState{ID: head, Workchain: addr.Workchain, Account: addr.ID})
	absent := false
	err = b.servers.ask(ctx, q, func(answer lite.Message) error {
		a, ok := answer.(lite.AccountState)
		if !ok {
			return errAnswer
		}
		err := b.servers.parse(ctx, func() (err error) {
			nano, err = verifyBalance(a, block, addr.ID)
			return err
		})
		if absent = errors.Is(err, chaingql.ErrNotFound); absent {
			return nil
		}
		return err
	})
	if err == nil && absent {
		err = chaingql.ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	return nano, nil
}
