package tonlite

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chaingql/chaingql/tonlite/internal/lite"
)

var (
	errClosed = errors.New("tonlite: the Backend was closed")
	errAnswer = errors.New("an answer is not what was asked for")

	// errMissing says that no server that can be reached has a block.
	errMissing = errors.New("tonlite: no lite server has the block")

	// errBehind is errMissing of a server that does not know the newest block yet.
	errBehind = fmt.Errorf("%w, being behind", errMissing)
)

// servers are all of the configuration's. The preferred one is asked first, and
// another where that fails, lies, or does not have what is asked for.
type servers struct {
	all   []*server
	first atomic.Uint32 // place of the preferred one
	opts  Options
	life  context.Context // ends in close
	end   context.CancelFunc
	group sync.WaitGroup // attempts to connect

	slots   gate // queries that are under way
	parsers gate // answers that are taken apart
}

// maxAsked is how many queries of each use are under way at most, with those of
// less urgent uses: public servers throttle those who ask more than 32.
var maxAsked = [uses]int{forFollow: 32, forBalance: 28, forPage: 20, forSearch: 12}

func newServers(n network, opts Options) *servers {
	parsers := max(2, runtime.GOMAXPROCS(0)) // of which pages leave one to others
	set := &servers{opts: opts, slots: newGate(maxAsked)}
	set.parsers = newGate([uses]int{forFollow: parsers, forBalance: parsers, forPage: parsers - 1, forSearch: parsers - 1})
	set.life, set.end = context.WithCancel(context.Background())
	for _, p := range n.servers {
		set.all = append(set.all, &server{peer: p, zero: n.zero, timeout: opts.Timeout})
	}
	return set
}

func (set *servers) close() {
	set.end()
	set.hangUp() // whoever began to connect before this is waited for
	set.group.Wait()
	set.hangUp()
}

func (set *servers) hangUp() {
	for _, s := range set.all {
		s.close()
	}
}

// grace is how much longer than the first server others are waited for.
const grace = 250 * time.Millisecond

// greet connects to all, and returns when one does well, or none does. Of those
// that do about as soon the one that is furthest is preferred.
func (set *servers) greet(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, set.opts.Timeout+time.Second) // each has a deadline of its own
	defer cancel()
	type result struct {
		place int
		err   error
	}
	results := make(chan result, len(set.all))
	for i, s := range set.all {
		set.group.Go(func() {
			_, err := s.connect(ctx, set.life, &set.group)
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
				set.first.Store(uint32(r.place))
				if enough == nil {
					enough = time.After(grace)
				}
			case r.err != nil:
				if ctx.Err() == nil {
					set.fail(s, r.err)
				}
				failed = also(failed, fmt.Errorf("%s: %w", s.addr, r.err))
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

// ask puts a query to one server after the other until an answer stands up to
// its check. errMissing says that none has it: those who fail now are counted
// in only if they did well a short while ago.
func (set *servers) ask(ctx context.Context, q lite.Message, check func(lite.Message) error) error {
	if set.life.Err() != nil {
		return errClosed
	}
	var missing, failed error
	hope := false   // that one which fails just now has it
	behind := false // one is behind what is known
	first := int(set.first.Load())
	for i := range set.all {
		place := (first + i) % len(set.all)
		s := set.all[place]
		err := set.askOne(ctx, s, q, check)
		switch {
		case err == nil:
			if failed != nil || behind { // stay with one that does well
				set.first.Store(uint32(place))
			}
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, errMissing):
			missing = err
			behind = behind || errors.Is(err, errBehind)
		default:
			failed = also(failed, fmt.Errorf("lite server %s: %w", s.addr, err))
			hope = hope || s.lately()
		}
	}
	if missing != nil && !hope {
		return missing
	}
	return fmt.Errorf("tonlite: %w", failed)
}

// askOne puts a query to one server, with a deadline of its own.
func (set *servers) askOne(ctx context.Context, s *server, q lite.Message, check func(lite.Message) error) error {
	if wait, cause := s.ready(); wait > 0 {
		return fmt.Errorf("left alone for %v: %w", wait.Round(time.Millisecond), cause)
	}
	client, err := set.connect(ctx, s)
	if err == nil {
		var answer lite.Message
		if answer, err = set.put(ctx, s, client, q); err == nil {
			if err = safely(func() error { return check(answer) }); err == nil {
				s.succeeded()
				return nil
			}
			if !errors.Is(err, errMissing) {
				err = fmt.Errorf("an answer is refused: %w", err)
			}
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var said lite.Error
	switch {
	case errors.As(err, &said):
		if said.Code == lite.CodeNotFound {
			return fmt.Errorf("%w: %w", errMissing, err)
		}
		return err // it is well, and will not
	case errors.Is(err, errMissing):
		return err
	case set.life.Err() != nil:
		return errClosed
	case errors.Is(err, lite.ErrLost): // may be made anew at once
		return err
	}
	set.fail(s, err)
	return err
}

func (set *servers) connect(ctx context.Context, s *server) (*lite.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, set.opts.Timeout)
	defer cancel()
	return s.connect(ctx, set.life, &set.group)
}

// put asks in turn, as no more than a few queries may be under way. The deadline
// begins with its turn: a server is not to blame for the wait.
func (set *servers) put(ctx context.Context, s *server, client *lite.Client, q lite.Message) (lite.Message, error) {
	leave, err := set.slots.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	own, cancel := context.WithTimeout(ctx, set.opts.Timeout)
	defer cancel()
	since := time.Now()
	answer, err := client.Ask(own, q)
	if err != nil && own.Err() != nil && ctx.Err() == nil {
		s.drop(client, since)
	}
	return answer, err
}

// parse takes an answer apart. No more answers are in parse than there are
// processors, or two: each may take tens of megabytes while it is.
func (set *servers) parse(ctx context.Context, read func() error) error {
	leave, err := set.parsers.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	return read()
}

// also puts errors into one line.
func also(some, more error) error {
	if some == nil {
		return more
	}
	return fmt.Errorf("%w; %w", some, more)
}

func (set *servers) fail(s *server, err error) {
	s.failed(err)
	set.opts.Logger.Warn("a lite server is left alone for a while", "server", s.addr, "error", err)
}
