package liteservertest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/chaingql/chaingql/tonlite/liteservertest"
	"github.com/xssnick/tonutils-go/address"
	"github.com/xssnick/tonutils-go/liteclient"
	"github.com/xssnick/tonutils-go/ton"
)

// TestAnotherClientIsServed has a client that knows nothing of this module read
// a chain: its handshake, its idea of the messages, and its own checks.
func TestAnotherClientIsServed(t *testing.T) {
	if raceEnabled {
		t.Skip("tonutils-go's package tl steps over what -race checks of pointers; go test -race -gcflags=all=-d=checkptr=0 would do")
	}
	chain := liteservertest.Made(30)
	s, err := liteservertest.Start(chain)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	var config liteclient.GlobalConfig
	if err := json.Unmarshal(s.Config(), &config); err != nil {
		t.Fatal(err)
	}
	pool := liteclient.NewConnectionPool()
	pool.SetOnDisconnect(nil)
	t.Cleanup(pool.Stop)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := pool.AddConnectionsFromConfig(ctx, &config); err != nil {
		t.Fatal(err)
	}
	api := ton.NewAPIClient(pool, ton.ProofCheckPolicySecure)
	api.SetTrustedBlockFromConfig(&config)
	head, err := api.GetMasterchainInfo(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if head.SeqNo != chain.Last() {
		t.Errorf("the newest block is %d, want %d", head.SeqNo, chain.Last())
	}
	early, err := api.LookupBlock(ctx, head.Workchain, head.Shard, 12)
	if err != nil {
		t.Fatal(err)
	}
	if err := api.VerifyProofChain(ctx, head, early); err != nil {
		t.Errorf("back to block 12: %v", err)
	}
	for addr, want := range chain.Balances(chain.Last()) {
		account, err := api.GetAccount(ctx, head, address.NewAddress(0, byte(addr.Workchain), addr.ID[:]))
		if err != nil {
			t.Fatalf("%v: %v", addr, err)
		}
		if got := account.State.Balance.Nano(); got.Cmp(want) != 0 {
			t.Errorf("%v has %v, want %v", addr, got, want)
		}
	}
	shards, err := api.GetBlockShardsInfo(ctx, head)
	if err != nil {
		t.Fatal(err)
	}
	if len(shards) == 0 {
		t.Error("there are no shards")
	}
	for _, id := range shards {
		block, err := api.GetBlockData(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		if parents, err := block.BlockInfo.GetParentBlocks(); err != nil || len(parents) == 0 || bytes.Equal(parents[0].RootHash, id.RootHash) {
			t.Errorf("%v goes on from %v, %v", id, parents, err)
		}
	}
	waited := make(chan error, 1)
	s.Advance(20)
	go func() {
		_, err := api.WaitForBlock(25).LookupBlock(ctx, head.Workchain, head.Shard, 25)
		waited <- err
	}()
	time.Sleep(20 * time.Millisecond) // it waits by then, most likely; it must be answered in any case
	s.Advance(25)
	if err := <-waited; err != nil {
		t.Error(err)
	}
}
