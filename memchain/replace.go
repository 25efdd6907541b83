package memchain

import (
	"fmt"
	"math/big"
	"strings"

	"github.com/chaingql/chaingql"
)

// Epoch returns the epoch that [Chain.Replace] has set last, or "" if it was never called.
func (c *Chain) Epoch() string { return *c.epoch.Load() }

// Replace starts a new chain: it drops all blocks and balances, and sets the epoch. Every
// running Follow ends with [chaingql.ErrChainReplaced]. Call Replace on a new chain to give
// it an epoch. Replace panics if epoch does not have 1 to 32 letters and digits, or is the
// epoch that the chain already has.
func (c *Chain) Replace(epoch string) {
	const letters = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	if epoch == "" || len(epoch) > 32 || strings.Trim(epoch, letters) != "" || epoch == c.Epoch() {
		panic(fmt.Sprintf("memchain: Replace: invalid epoch %q", epoch))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.epoch.Store(&epoch)
	c.blocks, c.dropped, c.floor = nil, 0, ""
	c.index, c.places, c.balances = make(index), newPlaces(), make(map[chaingql.Address]*big.Int)
	c.interrupt(chaingql.ErrChainReplaced)
}
