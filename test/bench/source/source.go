// Package source contains the chain that all servers of the benchmark serve. It also contains code that
// their resolvers share: argument checks, pages, filters and a feed of new blocks. Because all servers
// have the same data source, a slow data source cannot distort the comparison.
package source

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math/big"
	"sync/atomic"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

// These constants set the initial size of the chain.
const (
	// MasterBlocks is the number of masterchain blocks. Workchain 0 has the same number of blocks.
	MasterBlocks = 1024

	// Accounts is the number of accounts that have a balance.
	Accounts = 1000

	masterShard = 1 << 63
	genesis     = 1_700_000_000 // Unix time
)

// A Source is the chain in memory. All methods except Grow are safe for concurrent use.
type Source struct {
	*memchain.Chain
	height  uint32
	masters atomic.Pointer[[]chaingql.Block] // appended to by Grow
}

// New returns a chain of the initial size. Its content is always the same.
func New() (*Source, error) {
	s := &Source{Chain: memchain.New()}
	s.masters.Store(new([]chaingql.Block))
	for i := range Accounts {
		nano := new(big.Int).Mul(big.NewInt(int64(i)), big.NewInt(1_234_567_890_123))
		s.SetBalance(Address(i), nano)
	}
	for range MasterBlocks {
		n := s.height + 1
		if err := s.Append(block(0, n, n)); err != nil {
			return nil, err
		}
		if err := s.Grow(); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Grow appends the next block of the masterchain.
func (s *Source) Grow() error {
	b := block(-1, s.height+1, 0)
	if err := s.Append(b); err != nil {
		return err
	}
	masters := append(s.Masters(), b)
	s.masters.Store(&masters)
	s.height++
	return nil
}

// Masters returns all blocks of the masterchain. The caller must not change them.
func (s *Source) Masters() []chaingql.Block { return *s.masters.Load() }

// block returns a block. The argument master is the sequence number of the masterchain block that
// orders it, so that blocks of the masterchain and of workchain 0 alternate.
func block(workchain int32, seqNo, master uint32) chaingql.Block {
	b := chaingql.Block{
		Workchain: workchain, Shard: masterShard, SeqNo: seqNo,
		Time:   time.Unix(genesis+int64(seqNo)*5, 0),
		Cursor: chaingql.ChainOrder(workchain, masterShard, seqNo, master),
	}
	for i := 0; i < len(b.Hash); i += 4 {
		binary.BigEndian.PutUint32(b.Hash[i:], (seqNo*2654435761+uint32(i)*40503)^uint32(workchain))
	}
	return b
}

// Address returns the address of the i-th account. The account has a balance if i is in [0, Accounts).
func Address(i int) chaingql.Address {
	a := chaingql.Address{}
	for j := 0; j < len(a.ID); j += 4 {
		binary.BigEndian.PutUint32(a.ID[j:], uint32(i+1)*2246822519+uint32(j))
	}
	return a
}

// ErrAddress is returned by Account for an invalid address.
var ErrAddress = errors.New("Invalid account address")

// Account parses the address of an account.
func Account(address string) (chaingql.Address, error) {
	a, err := chaingql.ParseAddress(address)
	if err != nil {
		return a, ErrAddress
	}
	return a, nil
}

// Text returns the balance of an account as the API formats it: in decimal if dec is true, and otherwise
// in hexadecimal.
func (s *Source) Text(ctx context.Context, addr chaingql.Address, dec bool) (string, error) {
	nano, err := s.Balance(ctx, addr)
	switch {
	case errors.Is(err, chaingql.ErrNotFound):
		nano = new(big.Int)
	case err != nil:
		return "", err
	}
	if dec {
		return nano.String(), nil
	}
	return "0x" + nano.Text(16), nil
}

// Shard returns the shard of a block as the API formats it, in 16 hexadecimal digits.
func Shard(b *chaingql.Block) string {
	var prefix [8]byte
	binary.BigEndian.PutUint64(prefix[:], b.Shard)
	return hex.EncodeToString(prefix[:])
}
