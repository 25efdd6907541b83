package tonlite

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/tonlite/liteservertest"
)

// TestResponsesThatWaitToBeParsedAreBounded reads a block 40 times from a server that adds two megabytes to
// each response, while no response can be parsed. The Backend must keep four megabytes and one more
// response, even though it connects to the server again after the server has closed the connection.
func TestResponsesThatWaitToBeParsedAreBounded(t *testing.T) {
	s, err := liteservertest.Start(liteservertest.Generate(10))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	b, err := Open(t.Context(), s.Config(), &Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	s.SetLie(liteservertest.Padding)
	var leave []func()
	for range cap(b.servers.parseGate[forFollow]) {
		release, err := b.servers.parseGate.acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		leave = append(leave, release)
	}
	head, _ := b.knownHead()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var calls sync.WaitGroup
	for range 40 {
		calls.Go(func() {
			for ; ctx.Err() == nil; time.Sleep(10 * time.Millisecond) { // calls may end before a response
				if _, err := b.master(ctx, head); err == nil {
					t.Error("got a block, although no response was parsed")
				}
			}
		})
	}
	window, most := &b.servers.all[0].window, 0
	full := time.AfterFunc(time.Minute, cancel)
	for ctx.Err() == nil {
		if n := window.Used(); n > most {
			if most = n; n > 4<<20 {
				full.Reset(1500 * time.Millisecond) // after a second, the server closes the connection
			}
		}
		time.Sleep(time.Millisecond)
	}
	calls.Wait()
	const want = 4<<20 + 2<<20 + 64<<10
	if most <= 4<<20 || most > want {
		t.Errorf("up to %d bytes waited to be parsed, want more than 4 MiB and at most %d", most, want)
	}
	if n := window.Used(); n != 0 {
		t.Errorf("%d bytes wait to be parsed after all calls have ended", n)
	}
	for _, release := range leave {
		release()
	}
	s.SetLie(liteservertest.Truth)
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if _, err := b.Blocks(t.Context(), chaingql.BlocksQuery{Last: 3}); err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the server was not used again within a minute")
		}
	}
}
