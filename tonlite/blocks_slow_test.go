package tonlite_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/tonlite"
	"github.com/chaingql/chaingql/tonlite/liteservertest"
)

// TestNewestPageIsReadFromDistantServers repeats a page of the newest blocks, as a Handler does when it starts, while
// new blocks come. One call has too little time to read the whole page, so it must continue where the last one ended.
func TestNewestPageIsReadFromDistantServers(t *testing.T) {
	for _, distance := range []time.Duration{500 * time.Millisecond, 600 * time.Millisecond, 700 * time.Millisecond} {
		t.Run(fmt.Sprintf("%v away", distance), func(t *testing.T) {
			inBubble(t, func(t *testing.T, m *memoryNetwork) {
				chain := generate(120)
				var all []*liteservertest.Server
				for range 3 {
					s := m.start(chain)
					s.Advance(40)
					s.Delay(distance)
					all = append(all, s)
				}
				b := m.open(all[0].Config(all[1:]...), &tonlite.Options{Logger: slog.New(slog.DiscardHandler)})
				running, stop := context.WithCancel(t.Context())
				var growing sync.WaitGroup
				defer growing.Wait()
				defer stop()
				growing.Go(func() {
					for head := uint32(41); running.Err() == nil; head++ {
						time.Sleep(blockInterval)
						for _, s := range all {
							s.Advance(head)
						}
					}
				})
				err := context.Canceled
				for begin := time.Now(); err != nil && time.Since(begin) < time.Minute; time.Sleep(time.Second) {
					ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // Limits.BackendTimeout
					_, err = b.Blocks(ctx, chaingql.BlocksQuery{Last: 30})
					cancel()
				}
				if err != nil {
					t.Errorf("after a minute, the page of the newest blocks still returns error %v", err)
				}
			})
		})
	}
}
