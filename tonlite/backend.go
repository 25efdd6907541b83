package tonlite

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"sync"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/tonlite/internal/lite"
)

// A Backend serves a TON network from its lite servers. [Open] returns one. Its methods
// may be called concurrently.
type Backend struct {
	servers *servers
	prover  *prover
	opts    Options // with defaults
	masters *cache[*master]
	steps   *cache[[]chaingql.Block]

	pages, searches, newestPages semaphore

	mu        sync.Mutex
	head      lite.BlockID // the newest proven masterchain block
	following int          // number of Follows that wait for the next one at a server
	oldest    uint32       // the oldest masterchain block that a server had, or 0

	close sync.Once
}

var (
	_ chaingql.Backend        = (*Backend)(nil)
	_ chaingql.BalanceBatcher = (*Backend)(nil)
)

var errNoTrust = errors.New("tonlite: the configuration has no init_block after the zero state to prove blocks from: " +
	"add a key block of the masterchain that you trust, or set Options.Unproven to accept blocks without proof")

// Open connects to the lite servers in a network's global.config.json (see [ReadConfig])
// and proves the newest masterchain block, unless Options.Unproven is set. One working
// server is enough; others are tried if necessary. Open returns a one-line error if the
// configuration, a key, the network or the proof is wrong.
//
// The proof goes through every key block since init_block. There are a few per day, and
// each response covers about a dozen, so Open takes longer the older the configuration
// is. A malicious server can delay each response by Options.Timeout: pass a context with
// a deadline. The context applies to Open only. Call Close when the Backend is no longer
// used.
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
		servers: newServers(n, o), opts: o,
		masters: newCache[*master](4 * o.Cache), steps: newCache[[]chaingql.Block](o.Cache),
		pages:       newSemaphore(maxPages, waitingPages, errPages),
		searches:    newSemaphore(maxSearches, waitingSearches, errSearches),
		newestPages: newSemaphore(1, waitingNewest, errPages),
	}
	b.prover = &prover{servers: b.servers, initBlock: n.trusted, key: n.trusted}
	if err := b.servers.connectAll(ctx); err != nil {
		b.Close()
		return nil, fmt.Errorf("tonlite: no lite server of the configuration works: %w", err)
	}
	if _, err := b.currentHead(ctx); err != nil {
		b.Close()
		return nil, fmt.Errorf("tonlite: the newest masterchain block: %w", err)
	}
	return b, nil
}

// Close ends every Follow and every running call, and closes all connections. Shut down
// the Handler first. A second Close does nothing.
func (b *Backend) Close() {
	b.close.Do(func() {
		b.servers.close()
	})
}

// Balance returns an account's proven balance after the newest masterchain block. For an
// account of a workchain, that is the balance after the newest block of its shard that the
// masterchain block commits to.
func (b *Backend) Balance(ctx context.Context, addr chaingql.Address) (*big.Int, error) {
	ctx = withUse(ctx, forBalance)
	head, err := b.currentHead(ctx)
	if err != nil {
		return nil, err
	}
	return b.balance(ctx, head, addr)
}

// Balances returns the balances of several accounts after the same masterchain block. It
// queries up to 8 concurrently.
func (b *Backend) Balances(ctx context.Context, addrs []chaingql.Address) ([]*big.Int, error) {
	ctx = withUse(ctx, forBalance)
	head, err := b.currentHead(ctx)
	if err != nil {
		return nil, err
	}
	balances := make([]*big.Int, len(addrs))
	err = parallel(ctx, len(addrs), func(ctx context.Context, i int) error {
		nano, err := b.balance(ctx, head, addrs[i])
		if err != nil && !errors.Is(err, chaingql.ErrNotFound) {
			return err
		}
		balances[i] = nano
		return nil
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
			if top.Workchain == addr.Workchain && overlap(top.Shard, prefix(addr)) {
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
	q := lite.Wait{ // lets a lagging server catch up
		SeqNo: head.SeqNo, Timeout: uint32(b.opts.Timeout.Milliseconds() / 4),
		Then: lite.GetAccountState{ID: head, Workchain: addr.Workchain, Account: addr.ID},
	}
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
