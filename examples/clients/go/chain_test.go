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

func TestBlocksSurviveCutConnections(t *testing.T) {
	s := serve(t)
	s.grow(150)
	line := newBadLine(t, s.address, 0, 20_000, false)
	var got []string
	for b, err := range client.New("http://"+line.Addr().String(), "shop", "s3cret").Blocks(soon(t), "", nil) {
		if err != nil {
			t.Fatalf("after %d blocks and %d cuts: %v", len(got), line.losses.Load(), err)
		}
		if got = append(got, b.ChainOrder); len(got)%2 == 0 && len(got) <= 1000 {
			s.grow(1)
		}
		if len(got) == 1300 {
			break
		}
	}
	if !slices.Equal(got, s.cursors(all)) {
		t.Errorf("%d blocks, %d distinct ones, differ from those of the chain", len(got), len(slices.Compact(slices.Sorted(slices.Values(got)))))
	}
	if cuts := line.losses.Load(); cuts < 5 {
		t.Errorf("only %d cuts, too few", cuts)
	} else {
		t.Logf("%d cuts", cuts)
	}
}

// The position of a cut matters: after the header of a frame, the WebSocket library returns an
// incomplete message.
func TestBlocksSurviveCutAtEachByte(t *testing.T) {
	s := serve(t)
	s.grow(2)
	const first, frame = 700, 400 // after the first block of a connection; longer than the next one
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
					t.Errorf("cut after %d bytes: %v", at, err)
					return
				}
				if got = append(got, b.ChainOrder); len(got) == 4 {
					break
				}
			}
			if !slices.Equal(got, s.cursors(all)) || line.losses.Load() == 0 {
				t.Errorf("cut after %d bytes, %d times: %q", at, line.losses.Load(), got)
			}
		})
	}
	clients.Wait()
}

func TestSilentConnectionIsReplaced(t *testing.T) {
	s := serve(t)
	s.grow(50)
	line := newBadLine(t, s.address, 5_000, 20_000, true) // after the handshake, which has its own timeout
	c := client.New("http://"+line.Addr().String(), "shop", "s3cret")
	c.Silence = 200 * time.Millisecond
	var got []string
	for b, err := range c.Blocks(soon(t), "", nil) {
		if err != nil {
			t.Fatalf("after %d blocks: %v", len(got), err)
		}
		if got = append(got, b.ChainOrder); len(got)%2 == 0 && len(got) <= 200 {
			s.grow(1)
		}
		if len(got) == 300 {
			break
		}
	}
	if !slices.Equal(got, s.cursors(all)) || line.losses.Load() == 0 {
		t.Errorf("%d blocks over %d lost connections differ from those of the chain", len(got), line.losses.Load())
	}
}

func TestIdleConnectionIsKeptByPings(t *testing.T) {
	s := serveAt(t, time.Second) // a ping and its answer may take twice this time
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
		t.Errorf("%d connections, want 1, because the service sends pings", calls)
	}
}

func TestBlocksSurviveServiceRestarts(t *testing.T) {
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
			ChainOrder: s.cursors(all)[0],
		}
		if err != nil || b != want {
			t.Errorf("%+v, %v\nwant %+v", b, err, want)
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
		t.Errorf("%v, %v, want %v", got, err, nano)
	}
	if got, err := s.client().Balance(soon(t), "nowhere"); err == nil {
		t.Errorf("balance %v for an invalid address", got)
	}
}

func TestWrongSecretIsNotRetried(t *testing.T) {
	s := serve(t)
	for _, secret := range []string{"", "wrong"} {
		c := client.New("http://"+s.address, "shop", secret)
		if _, err := c.Newest(soon(t)); err == nil {
			t.Errorf("secret %q was accepted", secret)
		}
		var ends []error
		for _, err := range c.Blocks(soon(t), "", nil) {
			ends = append(ends, err)
		}
		if len(ends) != 1 || websocket.CloseStatus(ends[0]) != 4403 {
			t.Errorf("secret %q: %v", secret, ends)
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
	var end *client.Ended
	if len(ends) != 1 || !errors.As(ends[0], &end) || end.Code != "CURSOR_TOO_OLD" {
		t.Errorf("%v", ends)
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
		t.Errorf("%v", ends)
	}
}
