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

// size is how large a run is.
type size struct {
	blocks, subscribers, cuts, failures int
	rate                                float64 // blocks a second
	holes                               float64 // chance that Follow leaves a block out, and that two come the wrong way round
	fates                               []fate  // of holes in the source, in this order
	resume                              resuming
	patience                            time.Duration // default: patience
}

// A world is all that a run consists of.
type world struct {
	size
	seed   uint64
	truth  *truth
	why    string // there are no recorded blocks
	source *source
	chaos  *backendtest.ChaosBackend
	host   *service
	wide   *proxy // for quick subscribers and queries
	narrow *proxy // for slow ones

	peers       []*peer
	subscribers []*subscriber // of the peers
	reading     sync.WaitGroup

	decided int          // the number of the block before which the last hole was decided
	dry     atomic.Bool  // all blocks are committed
	calm    atomic.Bool  // no lines are cut
	newest  atomic.Int64 // the newest block that any subscriber was sent
	pruned  atomic.Int64 // how many blocks
	queries struct{ answered, failed, behind atomic.Int64 }
	told    atomic.Int64 // subscribers that came with a pruned cursor and were told so

	searching atomic.Bool // the service searches for blocks of a hole, and will have them or be replaced

	mu     sync.Mutex
	faults []string
}

// newWorld brings everything up, with the first tenth of the blocks committed
// and half of those pruned.
func newWorld(s size, seed uint64, logs bool) (*world, error) {
	w := &world{size: s, seed: seed, source: &source{Chain: memchain.New()}}
	w.patience = cmp.Or(w.patience, patience)
	w.truth, w.why = newTruth(s.blocks, seed)
	if err := w.source.Append(w.truth.blocks[:w.before()]...); err != nil {
		return nil, err
	}
	// Enough that hardly ever a run has to be given more; see commit.
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
	var err error
	if w.host, err = newService(w.chaos, w.truth.place, max(16, min(256, s.blocks/10)), logger); err != nil {
		return nil, err
	}
	if w.wide, err = newProxy(w.host.addr, false, seed); err == nil {
		w.narrow, err = newProxy(w.host.addr, true, seed+1)
	}
	return w, err
}

// before is how many blocks there are at first.
func (w *world) before() int { return w.blocks / 10 }

// close ends the service and the proxies and waits for them.
func (w *world) close() error {
	w.chaos.Calm()
	err := w.host.close()
	w.wide.close()
	w.narrow.close()
	return err
}

func (w *world) fault(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.faults) < 20 {
		w.faults = append(w.faults, fmt.Sprintf(format, args...))
	}
}

// slowness is how long a slow subscriber waits between blocks: it reads a tenth
// of what comes, and catches up once nothing comes any more.
func (w *world) slowness() time.Duration {
	if w.dry.Load() {
		return time.Duration(float64(time.Second) / w.rate / 4)
	}
	return time.Duration(float64(time.Second) / w.rate * 10)
}

// prune drops the first n blocks.
func (w *world) prune(n int) {
	if int64(n) > w.pruned.Load() {
		if err := w.chaos.Prune(context.Background(), w.truth.blocks[n].Cursor); err != nil {
			w.fault("pruning: %v", err)
			return
		}
		w.pruned.Store(int64(n))
	}
}

// query asks for the latest block, again and again: what a subscriber has been
// sent, a query that begins later must show.
func (w *world) query(ctx context.Context) {
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	for pause(ctx, 15*time.Millisecond) {
		sent := int(w.newest.Load())
		latest, err := w.latest(ctx, client)
		switch n, known := w.truth.place[latest]; {
		case err != nil:
			w.queries.failed.Add(1)
		case !known:
			w.fault("blocks(last: 1) showed cursor %q, which no block has", latest)
		case n < sent:
			w.queries.behind.Add(1)
			w.fault("blocks(last: 1) showed block %d (%q) when a subscriber had been sent %d (%q)", n, latest, sent, w.truth.blocks[sent].Cursor)
		default:
			w.queries.answered.Add(1)
		}
	}
}

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
		Errors []trouble
	}
	if err := json.NewDecoder(res.Body).Decode(&a); err != nil {
		return "", err
	}
	if len(a.Errors) > 0 || len(a.Data.Blockchain.Blocks.Edges) == 0 {
		return "", errors.New("no block")
	}
	return a.Data.Blockchain.Blocks.Edges[0].Node.ChainOrder, nil
}
