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

// A Backend serves a TON network out of its lite servers. Make one with [Open];
// its methods may be called concurrently.
type Backend struct {
	servers *servers
	trust   *trust
	opts    Options // in force
	masters *cache[*master]
	steps   *cache[[]chaingql.Block]

	pages, searches room

	mu     sync.Mutex
	head   lite.BlockID // the newest masterchain block that is proven
	live   int          // how many Follows wait for the one after it
	oldest uint32       // the lowest that was found to be there, or 0

	close sync.Once
}

var (
	_ chaingql.Backend        = (*Backend)(nil)
	_ chaingql.BalanceBatcher = (*Backend)(nil)
)

var errNoTrust = errors.New("tonlite: the configuration has no init_block past the zero state to prove blocks from: " +
	"put a key block of the masterchain that you trust there, or set Options.Unproven to take blocks at the servers' word")

// Open connects to the lite servers that a network's global.config.json names
// (see [ReadConfig]), and proves the newest masterchain block. One server that
// does well is enough; the others are tried when they are needed. What is wrong
// (configuration, keys, network, proof) is one error here. The proof passes every
// key block since init_block, a few a day and a dozen or so with each answer: of
// an old configuration that takes its time, up to Options.Timeout for each answer
// of a server that means ill. The context, best with a deadline, is for opening alone.
// Close the Backend when it is no longer used.
func Open(ctx context.Context, config []byte, opts *Options) (*Backend, error) {
	o := opts.withDefaults()
	n, err := parseConfig(config)
	if err != nil {
		return nil, err
	}
	if o.Unproven {
		o.Logger.Warn("tonlite: Options.Unproven: masterchain blocks are taken at the lite servers' word")
		n.trusted = lite.BlockID{}
	} else if n.trusted.SeqNo == 0 {
		return nil, errNoTrust
	}
	b := &Backend{
		servers: newServers(n, o), opts: o,
		masters: newCache[*master](4 * o.Cache), steps: newCache[[]chaingql.Block](o.Cache),
		pages: newRoom(maxPages, waitingPages, errPages), searches: newRoom(maxSearches, waitingSearches, errSearches),
	}
	b.trust = &trust{servers: b.servers, start: n.trusted, key: n.trusted}
	if err := b.servers.greet(ctx); err != nil {
		b.Close()
		return nil, fmt.Errorf("tonlite: no lite server of the configuration will do: %w", err)
	}
	if _, err := b.current(ctx); err != nil {
		b.Close()
		return nil, fmt.Errorf("tonlite: the newest masterchain block: %w", err)
	}
	return b, nil
}

// Close ends every Follow and every call that is under way, and closes all
// connections. Shut the Handler down before. A second Close does nothing.
func (b *Backend) Close() {
	b.close.Do(func() {
		b.servers.close()
	})
}

// Balance reads an account's balance after the newest masterchain block, with a
// proof. Of an account of a workchain it is the balance after the newest block
// of its shard that the masterchain block commits to.
func (b *Backend) Balance(ctx context.Context, addr chaingql.Address) (*big.Int, error) {
	ctx = with(ctx, forBalance)
	head, err := b.current(ctx)
	if err != nil {
		return nil, err
	}
	return b.balance(ctx, head, addr)
}

// Balances reads the balances of several accounts after one masterchain block,
// some at a time.
func (b *Backend) Balances(ctx context.Context, addrs []chaingql.Address) ([]*big.Int, error) {
	ctx = with(ctx, forBalance)
	head, err := b.current(ctx)
	if err != nil {
		return nil, err
	}
	balances := make([]*big.Int, len(addrs))
	err = together(ctx, len(addrs), func(ctx context.Context, i int) error {
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
	q := lite.Wait{ // of a server that is behind, a moment's patience
		SeqNo: head.SeqNo, Timeout: uint32(b.opts.Timeout.Milliseconds() / 2),
		Then: lite.GetAccountState{ID: head, Workchain: addr.Workchain, Account: addr.ID},
	}
	absent := false
	err = b.servers.ask(ctx, q, func(answer lite.Message) error {
		a, ok := answer.(lite.AccountState)
		if !ok {
			return errAnswer
		}
		err := b.servers.parse(ctx, func() (err error) {
			nano, err = provenBalance(a, block, addr.ID)
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
