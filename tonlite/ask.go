package tonlite

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/tonlite/internal/lite"
)

var (
	errClosed = errors.New("tonlite: the Backend was closed")
	errAnswer = errors.New("the response does not match the query")

	// errMissing is returned if no reachable server has the requested block. Unless all servers have
	// deleted the block, which is found out separately, one of them may have it later.
	errMissing = fmt.Errorf("tonlite: no lite server has the block (%w)", chaingql.ErrUnavailable)

	// errInvented is returned if a server names a masterchain block that no server proves or sends.
	errInvented = errors.New("invalid response: an invented block")

	// errLagging wraps errMissing. It is returned if a server does not have the newest known
	// block yet.
	errLagging = fmt.Errorf("%w yet: the server lags behind", errMissing)
)

// servers contains the lite servers in the configuration. A query usually goes to the preferred server
// first. If that server is slow, fails, sends an invalid response, or does not have the block, the
// query goes to the next server.
type servers struct {
	all       []*server
	preferred atomic.Uint32 // index of the preferred server
	overtaker atomic.Uint32 // index of the server that last overtook the one on which a Follow waits
	head      atomic.Uint32 // seq_no of the Backend's head
	opts      Options
	ctx       context.Context // canceled by close
	cancel    context.CancelFunc
	group     sync.WaitGroup // attempts to connect that are in progress

	queryGate gate // queries in flight
	parseGate gate // responses being parsed
}

// maxQueries contains, for each use, the maximum number of queries in flight. Queries of less
// urgent uses count too. The largest number is 32 because public servers throttle clients that
// have more queries in flight.
var maxQueries = [uses]int{forFollow: 32, forBalance: 28, forCatchUp: 24, forPage: 20, forSearch: 12}

func newServers(n network, opts Options) *servers {
	parsers := max(2, runtime.GOMAXPROCS(0)) // pages and searches leave one to more urgent uses
	set := &servers{opts: opts, queryGate: newGate(maxQueries)}
	set.parseGate = newGate([uses]int{
		forFollow: parsers, forBalance: parsers,
		forCatchUp: parsers - 1, forPage: parsers - 1, forSearch: parsers - 1,
	})
	set.ctx, set.cancel = context.WithCancel(context.Background())
	for _, p := range n.servers {
		set.all = append(set.all, &server{peer: p, zero: n.zero, timeout: opts.Timeout, netDial: opts.dial})
	}
	return set
}

func (set *servers) close() {
	set.cancel()
	set.closeConnections() // attempts to connect that are in progress may still succeed
	set.group.Wait()
	set.closeConnections()
}

func (set *servers) closeConnections() {
	for _, s := range set.all {
		s.close()
	}
}

// connectGrace is how long connectAll waits for more servers after the first one has connected. A server that is far
// away needs several round trips, and the nearest one may be stuck.
const connectGrace = time.Second

// connectAll connects to all servers concurrently. After the first success it waits at most
// connectGrace for more servers. Of the servers that have connected by then, it prefers the one
// with the newest head. It returns an error only if it could not connect to any server.
func (set *servers) connectAll(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, set.opts.Timeout+time.Second) // each attempt has its own deadline
	defer cancel()
	type result struct {
		place int
		err   error
	}
	results := make(chan result, len(set.all))
	for i, s := range set.all {
		set.group.Go(func() {
			_, err := s.connect(ctx, set.ctx, &set.group)
			results <- result{i, err}
		})
	}
	var (
		failed error
		best   *server
		enough <-chan time.Time
	)
	for range set.all {
		select {
		case r := <-results:
			s := set.all[r.place]
			switch {
			case r.err == nil && (best == nil || s.height() > best.height()):
				best = s
				set.preferred.Store(uint32(r.place))
				if enough == nil {
					enough = time.After(connectGrace)
				}
			case r.err != nil:
				if ctx.Err() == nil {
					set.backOff(s, r.err)
				}
				failed = joinErrors(failed, fmt.Errorf("%s: %w", s.addr, r.err))
			}
			continue
		case <-enough:
		}
		break
	}
	if best != nil {
		return nil
	}
	return failed
}

// ask sends a query to one server after another until a response passes check, as a hedgedQuery
// does. Calls of check do not overlap, and none follows a successful one. If no server has the requested block, ask
// returns errMissing. However, a server that fails at the moment might have the block. Therefore, if any
// failing server mayHave it, or responded that it lags behind, ask returns the errors of the failing
// servers instead. In haste, errMissing includes servers that have not replied in time.
func (set *servers) ask(ctx context.Context, q lite.Message, check func(lite.Message) error) error {
	var mu sync.Mutex
	passed := false
	return set.askIn(ctx, set.order(ctx, q), q, func(own context.Context, answer lite.Message) error {
		mu.Lock()
		defer mu.Unlock()
		if !passed {
			err := check(answer)
			if passed = err == nil; passed || ctx.Err() == nil {
				return err
			}
		}
		<-own.Done() // askIn is about to return, or ctx ended first: the server is not responsible for an error
		return own.Err()
	})
}

// A checkFunc checks a response. If it queries servers, it must use ctx.
type checkFunc = func(ctx context.Context, answer lite.Message) error

// askIn is like ask, but queries only the servers whose indexes are in order, in that order. If a call of check takes
// more than half of the time left, other responses are checked, too, so calls may overlap, and several may succeed.
func (set *servers) askIn(ctx context.Context, order []int, q lite.Message, check checkFunc) error {
	if set.ctx.Err() != nil {
		return errClosed
	}
	var missing, failed error
	var failing []*server
	var lacking []*server // that do not have what another one may send, see order
	hope := false         // whether a server that lags or fails may have the block
	lagging := false      // whether a server lags behind the known head
	invented := false     // whether a server names a block that no server proves or sends
	rejected := false     // whether a server rejects the query, and not because of its rate limit
	late := true          // whether the first server has neither failed nor passed yet
	h := set.hedge(ctx, q, order, check)
	defer h.stop()
	for v, ok := h.next(); ok; v, ok = h.next() {
		late = late && v.place != order[0]
		s, err := set.all[v.place], v.err
		switch {
		case err == nil:
			withheld := missing != nil && useOf(ctx) == forFollow
			if failed != nil || invented || lagging || late || withheld { // prefer a server that works, and is fast
				set.preferred.Store(uint32(v.place))
			}
			if first := set.all[order[0]]; late && time.Since(h.begin) > set.opts.Timeout/4 && !set.onlySlow(first, q) {
				lacking = append(lacking, first)
			}
			set.learn(ctx, q, s, lacking)
			return nil
		case ctx.Err() != nil:
			return timedOut(ctx.Err())
		case errors.Is(err, errMissing):
			missing = err
			h.askAll()
			if errors.Is(err, errLagging) {
				lagging = true
			} else {
				lacking = append(lacking, s)
			}
			invented = invented || errors.Is(err, errUnproven)
		default:
			failed = joinErrors(failed, fmt.Errorf("lite server %s: %w", s.addr, err))
			var serverErr lite.Error
			if _, ok := q.(lite.Wait); ok && v.lags {
				if set.mayLag(s, q) {
					hope = true
				} else {
					lacking = append(lacking, s)
				}
				h.askAll()
			} else {
				failing = append(failing, s)
				rejected = rejected || errors.As(err, &serverErr) && !isLag(err) && serverErr.Code != lite.CodeRateLimit
			}
		}
	}
	if missing != nil {
		for _, s := range failing {
			hope = s.mayHave(q, set.head.Load()) || hope
		}
		if !hope || h.haste != nil {
			return missing
		}
	}
	if failed = fmt.Errorf("tonlite: %w", failed); rejected {
		return failed
	}
	return outage{failed}
}

// mayLag reports whether it is plausible that server s lags behind the block that q waits for.
func (set *servers) mayLag(s *server, q lite.Message) bool {
	wait, ok := q.(lite.Wait)
	return ok && s.mayReach(wait.SeqNo, set.head.Load())
}

// fetch sends q to server s, with a deadline of its own. The caller must call release when it has
// checked the response. fetch returns an error if s fails, or is not used for a while because of an
// earlier failure. queued counts the calls that wait for a slot. The time of connecting is a part of the time of the
// response. Otherwise a server that loses its connections would delay queries without counting as slow.
func (set *servers) fetch(
	ctx context.Context, s *server, q lite.Message, queued *atomic.Int32,
) (answer lite.Message, release func(), err error) {
	if wait, cause := s.backoffLeft(); wait > 0 {
		return nil, nil, unusedError{wait, cause}
	}
	since := time.Now()
	client, err := set.connect(ctx, s)
	connecting := time.Since(since)
	if err != nil {
		s.observe(connecting, false)
		return nil, nil, err
	}
	return set.query(ctx, s, client, q, queued, connecting)
}

// timeout returns the time limit of one query or one attempt to connect. If there are several
// servers, the limit is at most half of the time that the call has left, but at least a third of
// Options.Timeout, as slow servers need. Otherwise a hung server would use up the whole time of each
// call and would never count as failed.
func (set *servers) timeout(ctx context.Context) time.Duration {
	limit := set.opts.Timeout
	if deadline, found := ctx.Deadline(); found && len(set.all) > 1 {
		limit = min(limit, max(time.Until(deadline)/2, limit/3))
	}
	return limit
}

func (set *servers) connect(ctx context.Context, s *server) (*lite.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, set.timeout(ctx))
	defer cancel()
	return s.connect(ctx, set.ctx, &set.group)
}

// query waits for a slot in queryGate and then sends q. The deadline of the query starts after
// this wait, because the server is not responsible for it. The caller must call release when it
// has checked the response.
func (set *servers) query(
	ctx context.Context, s *server, client *lite.Client, q lite.Message, queued *atomic.Int32, connecting time.Duration,
) (answer lite.Message, release func(), err error) {
	queued.Add(1)
	leave, err := set.queryGate.acquire(ctx)
	queued.Add(-1)
	if err != nil {
		return nil, nil, err
	}
	defer leave()
	own, cancel := context.WithTimeout(ctx, set.timeout(ctx))
	defer cancel()
	wait, _ := q.(lite.Wait)
	since, has := time.Now(), s.height() >= wait.SeqNo || older(wait.SeqNo, set.head.Load())
	answer, release, err = client.Query(own, q)
	if has { // otherwise a server that lags waits for the block
		s.observe(connecting+time.Since(since), err == nil)
	}
	if err != nil && own.Err() != nil && ctx.Err() == nil {
		s.closeIfSilent(client, since)
	}
	if info, ok := answer.(lite.MasterchainInfo); ok {
		s.announce(info.Last.SeqNo)
	}
	return answer, release, err
}

// parse calls read, which parses a response. Each call may need tens of megabytes of memory.
// Therefore the number of concurrent calls is at most the number of processors, or two if there
// is only one processor.
func (set *servers) parse(ctx context.Context, read func() error) error {
	leave, err := set.parseGate.acquire(ctx)
	if err != nil {
		return err
	}
	defer leave()
	return read()
}

// joinErrors returns an error with the texts of both errors in one line. some may be nil.
func joinErrors(some, more error) error {
	if some == nil {
		return more
	}
	return fmt.Errorf("%w; %w", some, more)
}

// convict does not use server s for lieBackoff, because err proves that it has named a forged block.
func (set *servers) convict(s *server, err error) {
	if s.convict(err) {
		set.opts.Logger.Warn("lite server lied and is not used for a while",
			slog.String("server", s.addr), slog.Any("error", err))
	}
}

func (set *servers) backOff(s *server, err error) {
	s.failed(err)
	set.opts.Logger.Warn("lite server failed and is not used for a while",
		slog.String("server", s.addr), slog.Any("error", err))
}
