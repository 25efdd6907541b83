package soak_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// size is how large a run is.
type size struct {
	length, warm, every time.Duration
	restarts            int
	busy                float64       // share of the machine's processors that the load is to take
	stay                time.Duration // about how long a subscriber stays
	leaving             time.Duration // that the service has to notice that everybody left
	leak                bool          // the service keeps something of each request
	forget              bool          // subscribers come back without a cursor
}

const (
	queriers    = 64
	subscribers = 36
	quickest    = time.Millisecond // between two queries of one querier
	slowest     = 200 * time.Millisecond
)

// A world is the service and all its clients.
type world struct {
	size
	t      *testing.T
	child  *child
	client *http.Client
	meter  meter
	begun  time.Time

	over atomic.Bool  // who is here stays to have all its blocks
	pace atomic.Int64 // between two queries of one querier, ns
	seen atomic.Int64 // the newest block that any subscriber had
	away atomic.Int64 // who came before may be told that there is no service, Unix time in ns

	// Since the load began.
	codes                            counts // of all answers
	latency, delivery                histogram
	answered, delivered, hostilities atomic.Int64
	unavailable, wrong               atomic.Int64 // of honest clients
	blocks                           int          // committed meanwhile
	restarted                        int
	recently, mean                   share // of the processors
	measured                         int

	mu     sync.Mutex
	faults []string
}

func (w *world) url(project string) string {
	return "http://" + w.child.addr + "/" + project + "/graphql"
}

func (w *world) fault(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wrong.Add(1)
	if len(w.faults) < 20 {
		w.faults = append(w.faults, fmt.Sprintf(format, args...))
	}
}

// honest takes down how an honest client fared that came at a time.
func (w *world) honest(who string, came time.Time, err error) {
	switch {
	case err == nil:
		w.answered.Add(1)
	case errors.Is(err, errUnavailable) && came.UnixNano() < w.away.Load():
		w.unavailable.Add(1)
	default:
		w.fault("%s: %v", who, err)
	}
}

func (w *world) saw(n int64) {
	for seen := w.seen.Load(); n > seen && !w.seen.CompareAndSwap(seen, n); seen = w.seen.Load() {
	}
}

// load lets everybody come, stay for a while, and leave.
func (w *world) load(length time.Duration, restarts int) error {
	now, err := w.child.ask("state")
	if err != nil {
		return err
	}
	w.saw(int64(now.Newest))
	w.client = &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: queriers}}
	defer w.client.CloseIdleConnections()
	w.begun = time.Now()
	w.pace.CompareAndSwap(0, int64(20*time.Millisecond))
	ctx, cancel := context.WithCancel(context.Background())
	var people sync.WaitGroup
	defer people.Wait()
	defer cancel()
	var subscribed []*subscriber
	for i := range subscribers {
		s := newSubscriber(w, i, now.Newest)
		subscribed = append(subscribed, s)
		people.Go(func() { s.live(ctx) })
	}
	for range queriers {
		people.Go(func() { w.query(ctx) })
	}
	for _, h := range hostiles() {
		for range h.number {
			people.Go(func() { w.be(ctx, h) })
		}
	}
	if err := w.tend(length, restarts); err != nil {
		return err
	}
	return w.catchUp(subscribed, now.Newest)
}

// tend looks after the load for as long as it is to last, which is counted in
// beats: while this process is held up, nobody asks for anything.
func (w *world) tend(length time.Duration, restarts int) error {
	w.meter.pids = [2]int{os.Getpid(), w.child.cmd.Process.Pid}
	if _, err := w.meter.since(); err != nil {
		return err
	}
	const beat = 250 * time.Millisecond
	beats := time.NewTicker(beat)
	defer beats.Stop()
	shown := time.Duration(0)
	for since := shown; since < length; since += beat {
		<-beats.C
		if err := w.steer(); err != nil {
			return err
		}
		if since-shown >= w.every {
			shown += w.every
			if err := w.show(); err != nil {
				return err
			}
		}
		if w.restarted < restarts && since > length*time.Duration(w.restarted+1)/time.Duration(restarts+1) {
			if err := w.restart(); err != nil {
				return err
			}
			since += restarting
		}
	}
	return nil
}

// restart has the service replaced while everybody goes on.
func (w *world) restart() error {
	w.away.Store(math.MaxInt64)
	_, err := w.child.ask("replace")
	w.away.Store(time.Now().UnixNano())
	w.restarted++
	return err
}

// catchUp waits until each subscriber has what has been committed behind the
// block that was the newest before.
func (w *world) catchUp(subscribed []*subscriber, before int) error {
	now, err := w.child.ask("state")
	if err != nil {
		return err
	}
	w.blocks = now.Newest - before
	w.over.Store(true)
	deadline := time.Now().Add(30 * time.Second)
	for _, s := range subscribed {
		for int(s.next.Load()) <= now.Newest && time.Now().Before(deadline) {
			time.Sleep(10 * time.Millisecond)
		}
		if next := int(s.next.Load()); next <= now.Newest {
			w.fault("%s lost what is behind block %d, up to %d", s.name, next, now.Newest)
		}
	}
	return nil
}

// steer has the queriers ask more often where the processors are not busy
// enough, and less often where they are too busy.
func (w *world) steer() error {
	s, err := w.meter.since()
	if err != nil {
		return err
	}
	w.recently = w.recently.mean(7, s)
	w.mean = w.mean.mean(float64(w.measured), s)
	w.measured++
	factor := min(1.1, max(0.9, w.recently.both/w.busy))
	w.pace.Store(int64(min(float64(slowest), max(float64(quickest), float64(w.pace.Load())*factor))))
	return nil
}

// show prints how things are.
func (w *world) show() error {
	h, err := w.child.ask("state")
	if err != nil {
		return err
	}
	w.t.Logf("%6v: %d requests (%v), honest errors %d, unavailable %d, queries %v, blocks %v, %v, %v",
		time.Since(w.begun).Round(time.Second), w.codes.sum(), &w.codes, w.wrong.Load(), w.unavailable.Load(), &w.latency, &w.delivery,
		w.recently, h)
	return nil
}

func jitter(most time.Duration) time.Duration { return time.Duration(rand.Int64N(int64(most) + 1)) }

// pause waits, and tells whether it is to go on.
func pause(ctx context.Context, d time.Duration) bool {
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
	}
	return ctx.Err() == nil
}
