package main

import (
	"crypto/sha256"
	"fmt"
	"math/big"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

const (
	rounds      = 80 // number of rounds; a round is one block of each shard and one of the masterchain
	masterchain = -1
	wholeShard  = 1 << 63
)

// genesis is the time of the first simulated block.
var genesis = time.Unix(1573822385, 0)

// simulate fills a chain with blocks and accounts. The content is always the same.
func simulate(chain *memchain.Chain) error {
	for n := uint32(1); n <= rounds; n++ {
		err := chain.Append(block(0, 0x4<<60, n), block(0, 0xc<<60, n), block(masterchain, wholeShard, n))
		if err != nil {
			return err
		}
	}
	for i, nano := range []int64{1_000_000_000, 1_234_567_890_123_456_789, 42} {
		addr := chaingql.Address{Workchain: masterchain}
		for b := range addr.ID {
			addr.ID[b] = byte(0x11 * (2*i + 1)) // -1:1111…, -1:3333…, -1:5555…
		}
		chain.SetBalance(addr, big.NewInt(nano))
	}
	return nil
}

func block(workchain int32, shard uint64, seqNo uint32) chaingql.Block {
	return chaingql.Block{
		Workchain: workchain, Shard: shard, SeqNo: seqNo,
		Time:   genesis.Add(time.Duration(seqNo) * 3 * time.Second),
		Hash:   sha256.Sum256(fmt.Appendf(nil, "%d:%016x:%d", workchain, shard, seqNo)),
		Cursor: chaingql.ChainOrder(workchain, shard, seqNo, seqNo),
	}
}
