package memchain_test

import (
	"context"
	"fmt"
	"log"
	"math/big"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

func Example() {
	chain := memchain.New()

	addr, err := chaingql.ParseAddress("EQCD39VS5jcptHL8vMjEXrzGaRcCVYto7HUn4bpAOg8xqB2N")
	if err != nil {
		log.Fatal(err)
	}
	chain.SetBalance(addr, big.NewInt(1_500_000_000))

	for seqNo := range uint32(3) {
		err := chain.Append(chaingql.Block{
			Workchain: -1,
			Shard:     1 << 63,
			SeqNo:     seqNo + 1,
			Time:      time.Unix(1_700_000_000, 0),
			Cursor:    chaingql.ChainOrder(-1, 1<<63, seqNo+1, 0),
		})
		if err != nil {
			log.Fatal(err)
		}
	}

	ctx := context.Background()
	balance, err := chain.Balance(ctx, addr)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("balance", balance)
	for block, err := range chain.Follow(ctx, "01m") {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("block", block.SeqNo, "at", block.Cursor)
		if block.SeqNo == 3 {
			break // Follow would wait for more blocks
		}
	}
	// Output:
	// balance 1500000000
	// block 2 at 02m
	// block 3 at 03m
}
