package chain_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	client "github.com/chaingql/chaingql/examples/clients/go"
)

// serveEpoch returns a service of a chain that has an epoch and 20 blocks.
func serveEpoch(t *testing.T) *service {
	s := serve(t)
	s.chain.Replace("one")
	s.restart()
	s.grow(10)
	return s
}

// replace replaces the chain with 40 blocks. Unless live is set, the service is down meanwhile, and refuses
// connections before replace calls cut.
func (s *service) replace(live bool, cut func()) {
	if !live {
		old := s.handler.Swap(s.open())
		s.shutdown(s.handler.Load())
		cut()
		s.shutdown(old)
	}
	s.chain.Replace("two")
	s.grow(20)
	if !live {
		s.handler.Store(s.open())
	}
}

// TestReplacedChainEndsStream replaces the chain while the client is connected, and while the service is down. No
// block of the new chain may follow those of the old one.
func TestReplacedChainEndsStream(t *testing.T) {
	for name, live := range map[string]bool{"live": true, "during an outage": false} {
		t.Run(name, func(t *testing.T) {
			s := serveEpoch(t)
			line := newBadLine(t, s.address, 1e6, 2e6, false)
			stored, count := "", 0
			var ends []error
			for b, err := range client.New("http://"+line.Addr().String(), "shop", "s3cret").Blocks(soon(t), "", nil) {
				if err != nil {
					ends = append(ends, err)
					break
				}
				if stored = b.Cursor; !strings.HasSuffix(stored, "~one") {
					t.Fatalf("received block %q after %d blocks of the first chain", stored, count)
				}
				if count++; count == 20 {
					s.replace(live, line.cut)
				}
			}
			for _, err := range s.client().Blocks(soon(t), stored, nil) {
				ends = append(ends, err)
			}
			for _, err := range ends {
				var end *client.StreamError
				if !errors.As(err, &end) || end.Code != "EPOCH_CHANGED" || len(ends) != 2 {
					t.Fatalf("two calls of Blocks yielded the errors %v, want only EPOCH_CHANGED", ends)
				}
			}
			for b, err := range s.client().Blocks(soon(t), "", nil) {
				if err != nil || !strings.HasSuffix(b.Cursor, "~two") {
					t.Errorf("after a new start, got block %q and error %v, want a block of the new chain",
						b.Cursor, err)
				}
				break
			}
		})
	}
}

// TestReplacedChainEndsSubscriptionsOfSDK does the same with both ways to follow blocks through the SDK.
func TestReplacedChainEndsSubscriptionsOfSDK(t *testing.T) {
	followNew := func(sdk client.SDK, after string, each func(client.SDKBlock), ended func(error)) (func(), error) {
		return client.FollowNew(t.Context(), sdk, after, each, ended)
	}
	fromOldest := func(sdk client.SDK, _ string, each func(client.SDKBlock), ended func(error)) (func(), error) {
		return followNew(sdk, "", each, ended)
	}
	for _, row := range []struct {
		name   string
		follow func(client.SDK, string, func(client.SDKBlock), func(error)) (func(), error)
		live   bool
	}{
		{"FollowFrom, live", client.FollowFrom, true}, {"FollowFrom, during an outage", client.FollowFrom, false},
		{"FollowNew, live", followNew, true}, {"FollowNew, during an outage", followNew, false},
		{"FollowNew without a cursor, during an outage", fromOldest, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			s, ctx := serveEpoch(t), soon(t)
			got, ended := make(chan string, 10_000), make(chan error, 1)
			if _, err := row.follow(newModelSDK(t, s.address, func(int) {}), s.cursors(all)[17]+"~one",
				func(b client.SDKBlock) { got <- b.Cursor }, func(err error) { ended <- err }); err != nil {
				t.Fatal(err)
			}
			for len(got) < 4 { // FollowNew reads nothing before the next block arrives
				s.growSoon(ctx)
			}
			s.replace(row.live, func() {})
			for len(ended) == 0 {
				s.growSoon(ctx)
			}
			if err := <-ended; err == nil || !strings.Contains(err.Error(), "608") {
				t.Errorf("the subscription ended with %v, want code 608", err)
			}
			for len(got) > 0 {
				if cursor := <-got; !strings.HasSuffix(cursor, "~one") {
					t.Errorf("received block %q, want only blocks of the first chain", cursor)
				}
			}
		})
	}
}

// growSoon appends a round. It fails the test if ctx is done.
func (s *service) growSoon(ctx context.Context) {
	s.t.Helper()
	select {
	case <-time.After(5 * time.Millisecond):
		s.grow(1)
	case <-ctx.Done():
		s.t.Fatal("the subscription received no block, or continues although the chain was replaced")
	}
}
