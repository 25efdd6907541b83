package chaingql_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/chaingql/chaingql"
)

// Each page costs a call of the Backend and is kept until the client reads it.
func TestFewPagesAreReadForASocketThatIsNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocks := randomBlocks(5, 500)
		chain := &pageCounter{Chain: chainOf(t, blocks)}
		slow := stubBackend{Backend: chain, blocks: func(
			ctx context.Context, q chaingql.BlocksQuery,
		) ([]chaingql.Block, error) {
			time.Sleep(10 * time.Millisecond) // the socket can still be written when its subscriptions start
			return chain.Blocks(ctx, q)
		}}
		h, _ := newHandler(t, slow, chaingql.Options{WindowSize: 5})
		n := serve(t, mounted(h))
		live := n.socket(t)
		live.send(start("live", "subscription{blocks{seq_no}}"))
		time.Sleep(time.Second)
		ctx := context.Background()
		s, _, err := websocket.Dial(ctx, "ws://x/demo/graphql", &websocket.DialOptions{
			HTTPClient: n.client(), Subprotocols: []string{"graphql-ws"},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer s.CloseNow()
		pages := chain.costs(func() {
			for i := range 100 {
				message := start(fmt.Sprint(i), fmt.Sprintf("subscription{blocks(after:%q){seq_no}}", blocks[i].Cursor))
				if err := s.Write(ctx, websocket.MessageText, []byte(message)); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(time.Second)
		})
		if pages > 12 { // each page may need further calls that look for missing blocks
			t.Errorf("100 subscriptions on a socket that is not read cost %d calls of Blocks, want at most 12", pages)
		}
	})
}
