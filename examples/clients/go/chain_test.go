package chain_test

import (
	"context"
	"errors"
	"math/big"
	"net/http"
	"os"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/chaingql/chaingql"
	client "github.com/chaingql/chaingql/examples/clients/go"
)

// TestMain fails if goroutines remain after the tests.
func TestMain(m *testing.M) {
	code := m.Run()
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	for range 500 {
		if runtime.NumGoroutine() <= 2 { // the test goroutine and the signal handler
			os.Exit(code)
		}
		time.Sleep(20 * time.Millisecond)
	}
	_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 1)
	os.Exit(1)
}

func TestBlocksArriveOnceDespiteCutConnections(t *testing.T) {
	s := serve(t)
	s.grow(150)
	line := newBadLine(t, s.address, 0, 20_000, false)
	var got []string
	for b, err := range client.New("http://"+line.Addr().String(), "shop", "s3cret").Blocks(soon(t), "", nil) {
		if err != nil {
			t.Fatalf("Blocks failed after %d blocks and %d cuts: %v", len(got), line.losses.Load(), err)
		}
		if got = append(got, b.ChainOrder); len(got)%2 == 0 && len(got) <= 1000 {
			s.grow(1)
		}
		if len(got) == 1300 {
			break
		}
	}
	if !slices.Equal(got, s.cursors(all)) {
		t.Errorf("the %d received blocks (%d distinct ones) differ from those of the chain",
			len(got), len(slices.Compact(slices.Sorted(slices.Values(got)))))
	}
	if cuts := line.losses.Load(); cuts < 5 {
		t.Errorf("the connection was cut %d times, want at least 5", cuts)
	} else {
		t.Logf("%d cuts", cuts)
	}
}

// The position of a cut matters: if the connection is cut after the header of a frame, coder/websocket returns an
// incomplete message.
func TestBlocksArriveOnceDespiteCutAtAnyByte(t *testing.T) {
	s := serve(t)
	s.grow(2)
	const first, frame = 700, 400 // first is after the first block of a connection; frame is longer than the next block
	var clients sync.WaitGroup
	places := make(chan struct{}, 32)
	for at := first; at < first+frame; at++ {
		places <- struct{}{}
		clients.Go(func() {
			defer func() { <-places }()
			line := newBadLine(t, s.address, at, at+1, false)
			var got []string
			for b, err := range client.New("http://"+line.Addr().String(), "shop", "s3cret").Blocks(soon(t), "", nil) {
				if err != nil {
					t.Errorf("Blocks failed after a cut at byte %d: %v", at, err)
					return
				}
				if got = append(got, b.ChainOrder); len(got) == 4 {
					break
				}
			}
			if !slices.Equal(got, s.cursors(all)) || line.losses.Load() == 0 {
				t.Errorf("received %q after %d cuts at byte %d, want all blocks once", got, line.losses.Load(), at)
			}
		})
	}
	clients.Wait()
}

func TestSilentConnectionIsReplaced(t *testing.T) {
	s := serve(t)
	s.grow(50)
	line := newBadLine(t, s.address, 5_000, 20_000, true) // the cuts follow the handshake, which has its own timeout
	c := client.New("http://"+line.Addr().String(), "shop", "s3cret")
	c.Silence = 200 * time.Millisecond
	var got []string
	for b, err := range c.Blocks(soon(t), "", nil) {
		if err != nil {
			t.Fatalf("Blocks failed after %d blocks: %v", len(got), err)
		}
		if got = append(got, b.ChainOrder); len(got)%2 == 0 && len(got) <= 200 {
			s.grow(1)
		}
		if len(got) == 300 {
			break
		}
	}
	if !slices.Equal(got, s.cursors(all)) || line.losses.Load() == 0 {
		t.Errorf("the %d blocks received over %d lost connections differ from those of the chain",
			len(got), line.losses.Load())
	}
}

func TestPingsKeepIdleConnection(t *testing.T) {
	s := serveAt(t, time.Second) // a ping and its pong may take twice this time
	s.grow(1)
	line := newBadLine(t, s.address, 1e6, 2e6, false)
	c := client.New("http://"+line.Addr().String(), "shop", "s3cret")
	c.Silence = 4 * time.Second
	count := 0
	for _, err := range c.Blocks(soon(t), "", nil) {
		if err != nil {
			t.Fatal(err)
		}
		if count++; count == 2 {
			time.AfterFunc(c.Silence+time.Second, func() { s.grow(1) })
		}
		if count == 4 {
			break
		}
	}
	if calls := line.calls.Load(); calls != 1 {
		t.Errorf("the client opened %d connections, want 1, because the service sends pings", calls)
	}
}

func TestBlocksArriveOnceDespiteServiceRestarts(t *testing.T) {
	s := serve(t)
	s.grow(3)
	c, ctx := s.client(), soon(t)
	after, err := c.Newest(ctx)
	if err != nil {
		t.Fatal(err)
	}
	masterchain := -1
	var got []string
	var restarts sync.WaitGroup
	defer restarts.Wait()
	s.grow(1)
	for b, err := range c.Blocks(ctx, after, &client.BlockFilter{WorkchainId: &client.IntFilter{Eq: &masterchain}}) {
		if err != nil {
			t.Fatal(err)
		}
		if got = append(got, b.ChainOrder); len(got) == 20 {
			break
		}
		if len(got)%6 == 0 {
			restarts.Wait()
			restarts.Go(s.restart)
		}
		s.grow(1)
	}
	want := s.cursors(func(b chaingql.Block) bool { return b.Workchain == -1 && string(b.Cursor) > after })
	if !slices.Equal(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
}

func TestBlockHasAllFields(t *testing.T) {
	s := serve(t)
	s.grow(1)
	for b, err := range s.client().Blocks(soon(t), "", nil) {
		want := client.Block{
			Id: "000001" + strings.Repeat("0", 58), Shard: "8000000000000000", SeqNo: 1, GenUtime: genesis.Unix(),
			ChainOrder: s.cursors(all)[0], Cursor: s.cursors(all)[0],
		}
		if err != nil || b != want {
			t.Errorf("received %+v, error %v\nwant %+v", b, err, want)
		}
		break
	}
}

func TestBalanceIsExact(t *testing.T) {
	s := serve(t)
	nano, _ := new(big.Int).SetString("340282366920938463463374607431768211457", 10)
	address := chaingql.Address{Workchain: -1, ID: [32]byte{7}}
	s.chain.SetBalance(address, nano)
	if got, err := s.client().Balance(soon(t), address.String()); err != nil || got.Cmp(nano) != 0 {
		t.Errorf("Balance returned %v, error %v, want %v", got, err, nano)
	}
	if got, err := s.client().Balance(soon(t), "nowhere"); err == nil {
		t.Errorf("Balance returned %v for an invalid address, want an error", got)
	}
}

func TestWrongSecretIsNotRetried(t *testing.T) {
	s := serve(t)
	for _, secret := range []string{"", "wrong"} {
		c := client.New("http://"+s.address, "shop", secret)
		if _, err := c.Newest(soon(t)); err == nil {
			t.Errorf("Newest accepted the secret %q, want an error", secret)
		}
		var ends []error
		for _, err := range c.Blocks(soon(t), "", nil) {
			ends = append(ends, err)
		}
		if len(ends) != 1 || websocket.CloseStatus(ends[0]) != 4403 {
			t.Errorf("with the secret %q, Blocks yielded the errors %v, want only close code 4403", secret, ends)
		}
	}
}

func TestPrunedCursorEndsStream(t *testing.T) {
	s := serve(t)
	s.grow(10)
	first := s.cursors(all)[0]
	s.chain.Prune(chaingql.Cursor(s.cursors(all)[10]))
	var ends []error
	for _, err := range s.client().Blocks(soon(t), first, nil) {
		ends = append(ends, err)
	}
	var end *client.StreamError
	if len(ends) != 1 || !errors.As(ends[0], &end) || end.Code != "CURSOR_TOO_OLD" {
		t.Errorf("Blocks yielded the errors %v, want only CURSOR_TOO_OLD", ends)
	}
}

func TestCanceledContextEndsStream(t *testing.T) {
	s := serve(t)
	s.grow(1)
	ctx, cancel := context.WithCancel(soon(t))
	defer cancel()
	var ends []error
	for _, err := range s.client().Blocks(ctx, s.cursors(all)[0], nil) {
		if ends = append(ends, err); err == nil {
			cancel()
		}
	}
	if len(ends) != 2 || !errors.Is(ends[1], context.Canceled) {
		t.Errorf("Blocks yielded the errors %v, want nil and context.Canceled", ends)
	}
}
