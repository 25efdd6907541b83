// Package source is the chain that all peers serve, with code that their resolvers share: argument
// checks, pages, filters and a feed of new blocks. All peers have the same data source, so none is
// slowed down by its own.
package source

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math/big"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

// Size of the chain at the start.
const (
	MasterBlocks = 1024 // and the same number in workchain 0
	Accounts     = 1000

	masterShard = 1 << 63
	genesis     = 1_700_000_000 // Unix time
)

// A Source is the chain. All methods except Grow are safe for concurrent use.
type Source struct {
	*memchain.Chain
	height uint32
}

// New returns the chain; its content is always the same.
func New() (*Source, error) {
	s := &Source{Chain: memchain.New()}
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
	if err := s.Append(block(-1, s.height+1, 0)); err != nil {
		return err
	}
	s.height++
	return nil
}

// block returns a block. A block of workchain 0 is ordered by the preceding masterchain block, so
// that the two alternate.
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

// Address returns the address of account i, for i below Accounts.
func Address(i int) chaingql.Address {
	a := chaingql.Address{}
	for j := 0; j < len(a.ID); j += 4 {
		binary.BigEndian.PutUint32(a.ID[j:], uint32(i+1)*2246822519+uint32(j))
	}
	return a
}

// ErrAddress is the API's error for an invalid address.
var ErrAddress = errors.New("Invalid account address")

// Account parses an address.
func Account(address string) (chaingql.Address, error) {
	a, err := chaingql.ParseAddress(address)
	if err != nil {
		return a, ErrAddress
	}
	return a, nil
}

// Text returns a balance in the API's format.
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

// Shard returns a shard in the API's format.
func Shard(b *chaingql.Block) string {
	var prefix [8]byte
	binary.BigEndian.PutUint64(prefix[:], b.Shard)
	return hex.EncodeToString(prefix[:])
}
