package chaos_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/backendtest"
	"github.com/chaingql/chaingql/memchain"
)

// A size holds the parameters of a run.
type size struct {
	blocks          int           // number of blocks
	subscribers     int           // number of subscribers
	cuts            int           // minimum number of connections to cut
	failures        int           // minimum number of source failures
	rate            float64       // blocks per second
	holes           float64       // probability that Follow omits a block, and that it swaps two blocks
	fates           []fate        // fates of the holes in the source, in chain order
	resume          resuming      // how subscribers resume
	epoch           string        // epoch of the chain; "" means that it has none
	progressTimeout time.Duration // maximum time without progress; 0 means the constant progressTimeout
}

// A world holds the state of a run: the chain, its source, the service, proxies and subscribers.
type world struct {
	size
	seed   uint64
	truth  *truth
	next   *truth // the new chain, after the chain has been replaced; set before replacing
	source *source
	chaos  *backendtest.ChaosBackend
	host   *service
	wide   *proxy // for fast subscribers and queries
	narrow *proxy // for slow subscribers

	peers       []*peer
	subscribers []*subscriber // all subscriptions of all peers
	reading     sync.WaitGroup

	decided      int          // number of the next block when the fate of the last hole was applied
	allCommitted atomic.Bool  // all blocks have been committed
	pauseCuts    atomic.Bool  // if true, no connections are cut
	newest       atomic.Int64 // number of the newest block that any subscriber has received
	replacing    atomic.Bool  // the chain has been replaced, or is being replaced
	pruned       atomic.Int64 // number of pruned blocks
	queries      struct{ answered, failed, behind atomic.Int64 }
	tooOld       atomic.Int64 // number of subscribers that received CURSOR_TOO_OLD for a pruned cursor

	// searching is true while the service searches for blocks that will appear, or until it is replaced.
	searching atomic.Bool

	mu     sync.Mutex
	faults []string
}

// newWorld starts the service and the proxies. It commits a tenth of the blocks and prunes half of
// those.
func newWorld(s size, seed uint64, logs bool) (*world, error) {
	w := &world{size: s, seed: seed, source: &source{Chain: memchain.New()}}
	w.progressTimeout = cmp.Or(w.progressTimeout, progressTimeout)
	var err error
	if w.truth, err = newTruth(s.blocks, seed); err != nil {
		return nil, err
	}
	if w.truth.epoch = s.epoch; s.epoch != "" {
		w.source.Replace(s.epoch)
	}
	if err := w.source.Append(w.truth.blocks[:w.before()]...); err != nil {
		return nil, err
	}
	// The probability of a failure is so high that commit rarely has to cause additional failures.
	fails := (float64(s.failures) + 4*math.Sqrt(float64(s.failures)) + 4) / float64(s.blocks-w.before()-settling)
	w.chaos = backendtest.Chaos(w.source, backendtest.ChaosOptions{
		Seed: seed, Fail: fails / 2, End: fails / 4, Panic: fails / 4,
		Stall: 0.01, Hole: s.holes, Swap: s.holes, Duplicate: 0.03, Replay: 0.03,
		PageFail: 0.05, PagePanic: 0.02, PageSlow: 0.05, PageHang: 0.01, Longest: 200 * time.Millisecond,
	})
	w.prune(w.before() / 2)
	logger := slog.New(slog.DiscardHandler)
	if logs {
		logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	window := max(16, min(256, s.blocks/10))
	if w.host, err = newService(noticing{w.chaos, w.source}, w.truth.place, window, logger); err != nil {
		return nil, err
	}
	if w.wide, err = newProxy(w.host.addr, false, seed); err == nil {
		w.narrow, err = newProxy(w.host.addr, true, seed+1)
	}
	return w, err
}

// before returns the number of blocks that are committed before the run.
func (w *world) before() int { return w.blocks / 10 }

// close stops the service and the proxies and waits for them.
func (w *world) close() error {
	w.chaos.Calm()
	err := w.host.close()
	w.wide.close()
	w.narrow.close()
	return err
}

// fault records an error in the run. It keeps only the first 20 errors.
func (w *world) fault(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.faults) < 20 {
		w.faults = append(w.faults, fmt.Sprintf(format, args...))
	}
}

// slowness returns the time between two reads of a slow subscriber. The subscriber reads at a tenth of
// the block rate until the last block has been committed, and then faster.
func (w *world) slowness() time.Duration {
	if w.allCommitted.Load() {
		return time.Duration(float64(time.Second) / w.rate / 4)
	}
	return time.Duration(float64(time.Second) / w.rate * 10)
}

// prune prunes the first n blocks of the source.
func (w *world) prune(n int) {
	if int64(n) > w.pruned.Load() {
		if err := w.chaos.Prune(context.Background(), w.truth.blocks[n].Cursor); err != nil {
			w.fault("pruning failed: %v", err)
			return
		}
		w.pruned.Store(int64(n))
	}
}

// query queries the latest block repeatedly. The block must not be older than the newest block that any
// subscriber had received before the query started.
func (w *world) query(ctx context.Context) {
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	for pause(ctx, 15*time.Millisecond) {
		sent := int(w.newest.Load())
		latest, err := w.latest(ctx, client)
		switch n, known := w.truth.place[latest]; {
		case err != nil:
			w.queries.failed.Add(1)
		case !known:
			w.fault("blocks(last: 1) returned the unknown cursor %q", latest)
		case n < sent:
			w.queries.behind.Add(1)
			w.fault("blocks(last: 1) returned block %d (%q) after a subscriber had received block %d (%q)",
				n, latest, sent, w.truth.blocks[sent].Cursor)
		default:
			w.queries.answered.Add(1)
		}
	}
}

// latest queries the cursor of the latest block.
func (w *world) latest(ctx context.Context, client *http.Client) (chaingql.Cursor, error) {
	body := strings.NewReader(`{"query":"{blockchain{blocks(last:1){edges{node{chain_order}}}}}"}`)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+w.wide.addr()+"/chaos/graphql", body)
	if err != nil {
		return "", err
	}
	r.Header.Set("Content-Type", "application/json")
	res, err := client.Do(r)
	if err != nil {
		return "", err
	}
	defer func() { _ = res.Body.Close() }()
	var a struct {
		Data struct {
			Blockchain struct {
				Blocks struct{ Edges []struct{ Node block } }
			}
		}
		Errors []graphqlError
	}
	if err := json.NewDecoder(res.Body).Decode(&a); err != nil {
		return "", err
	}
	if len(a.Errors) > 0 || len(a.Data.Blockchain.Blocks.Edges) == 0 {
		return "", errors.New("the response has no block")
	}
	return a.Data.Blockchain.Blocks.Edges[0].Node.ChainOrder, nil
}
