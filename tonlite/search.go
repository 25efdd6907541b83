package tonlite

import (
	"context"
	"errors"
	"time"

	"github.com/chaingql/chaingql"
)

const (
	// maxSearches is how many pages may search the history at a time. Each takes
	// thousands of queries.
	maxSearches = 4

	// searchPatience is how long another one waits. It is short, as a Handler has no
	// other calls under way while InFlight of them wait.
	searchPatience = 200 * time.Millisecond

	// nearby is through how many masterchain blocks a page is read without being a search.
	nearby = 8
)

var errBusy = errors.New("tonlite: too many pages are searched for at a time: ask closer to a cursor")

// A search reads the steps of one page. It needs one of maxSearches once it has passed
// over as many masterchain blocks as the page has blocks, and has to ask servers for
// more. Without a filter no page needs one: each masterchain block is a block.
type search struct {
	*Backend
	need  uint32
	begun bool
}

func (b *Backend) search(blocks int) *search {
	return &search{Backend: b, need: max(nearby, uint32(blocks))}
}

// read reads a stretch, after others of so many masterchain blocks.
func (s *search) read(ctx context.Context, q chaingql.BlocksQuery, r stretch, passed uint32) ([][]chaingql.Block, error) {
	if steps, ok := s.known(r); ok {
		return steps, nil
	}
	if passed >= s.need && !s.begun {
		timer := time.NewTimer(searchPatience)
		defer timer.Stop()
		select {
		case s.searches <- struct{}{}:
			s.begun = true
		case <-timer.C:
			return nil, errBusy
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if s.begun || q.Shard != nil { // which passes over most blocks
		ctx = with(ctx, forSearch)
	}
	return s.steady(ctx, q, r)
}

func (s *search) end() {
	if s.begun {
		s.begun = false
		<-s.searches
	}
}
