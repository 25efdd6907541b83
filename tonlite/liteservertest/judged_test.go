package liteservertest_test

import (
	"context"
	"crypto/ed25519"
	"net"
	"testing"
	"time"

	"github.com/chaingql/chaingql/internal/testkit"
	"github.com/chaingql/chaingql/tonlite/internal/lite"
	"github.com/xssnick/tonutils-go/adnl"
	"github.com/xssnick/tonutils-go/liteclient"
	"github.com/xssnick/tonutils-go/tl"
	"github.com/xssnick/tonutils-go/ton"
)

// TestClientWorksWithIndependentServer connects this module's client to the server of
// tonutils-go, which shares no code with this module.
func TestClientWorksWithIndependentServer(t *testing.T) {
	if raceEnabled {
		t.Log("package tl of tonutils-go fails the pointer checks of -race; use -gcflags=all=-d=checkptr=0")
		return
	}
	liteclient.Logger = func(...any) {}
	public, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	hash := make([]byte, 32)
	hash[7] = 7
	s := liteclient.NewServer([]ed25519.PrivateKey{key})
	s.SetMessageHandler(func(_ context.Context, client *liteclient.ServerClient, msg tl.Serializable) error {
		q, ok := msg.(adnl.MessageQuery)
		if !ok {
			return client.Send(liteclient.TCPPong{})
		}
		var answer any = ton.LSError{Code: 651, Text: "not in db"}
		if _, ok := q.Data.(liteclient.LiteServerQuery).Data.(ton.GetMasterchainInf); ok {
			answer = ton.MasterchainInfo{
				Last: &ton.BlockIDExt{
					Workchain: -1, Shard: -1 << 63, SeqNo: 42, RootHash: hash, FileHash: hash,
				},
				StateRootHash: hash, Init: &ton.ZeroStateIDExt{Workchain: -1, RootHash: hash, FileHash: hash},
			}
		}
		return client.Send(adnl.MessageAnswer{ID: q.ID, Data: answer})
	})
	addr := testkit.FreeAddress(t)
	go func() { _ = s.Listen(addr) }()
	t.Cleanup(func() { _ = s.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	dial := func() (*lite.Client, error) {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			return nil, err
		}
		return lite.Connect(ctx, conn, public, new(lite.Window))
	}
	var c *lite.Client
	for c, err = dial(); err != nil && ctx.Err() == nil; c, err = dial() {
		time.Sleep(10 * time.Millisecond)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	answer, err := c.Ask(ctx, lite.GetMasterchainInfo{})
	if err != nil {
		t.Fatal(err)
	}
	info, ok := answer.(lite.MasterchainInfo)
	if !ok || info.Last.SeqNo != 42 || info.Last.Shard != 1<<63 || info.Last.Root != [32]byte(hash) ||
		info.ZeroFile != [32]byte(hash) {
		t.Errorf("got masterchain info %+v, want that of the server", answer)
	}
	for _, q := range []lite.Message{
		lite.GetBlock{ID: info.Last}, lite.GetBlockHeader{ID: info.Last},
		lite.LookupBlock{Workchain: -1, Shard: 1 << 63, SeqNo: 7},
		lite.GetAccountState{ID: info.Last, Workchain: -1}, lite.GetBlockProof{Known: info.Last, Target: info.Last},
	} {
		if _, err := c.Ask(ctx, q); err != (lite.Error{Code: 651, Message: "not in db"}) {
			t.Errorf("query %T: got error %v, want error 651 of the server", q, err)
		}
	}
}
