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

// size holds the parameters of a run.
type size struct {
	length, warm, every time.Duration
	restarts            int
	busy                float64       // target share of the machine's CPU time
	stay                time.Duration // approximate duration of a subscription
	releaseTime         time.Duration // time in which the service must notice that all clients left
	leak                bool          // the service keeps some data of each request
	forget              bool          // subscribers resume without a cursor
}

const (
	queriers    = 64
	subscribers = 36
	quickest    = time.Millisecond // minimum time between two queries of a client
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

	over       atomic.Bool  // subscribers stay until they have all blocks
	pace       atomic.Int64 // time between two queries of a client, in nanoseconds
	seen       atomic.Int64 // newest block that any subscriber has received
	restartEnd atomic.Int64 // clients that connected before this Unix time (ns) may receive SERVICE_UNAVAILABLE

	// Counted from the start of the load.
	codes                            counts // of all responses
	latency, delivery                histogram
	answered, delivered, hostilities atomic.Int64
	unavailable, wrong               atomic.Int64 // results of honest clients
	blocks                           int          // committed during the load
	restarted                        int
	recently, mean                   share // used CPU time
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

// recordResult counts the result of an honest client: success, unavailable or wrong. The client connected at the time
// connected.
func (w *world) recordResult(who string, connected time.Time, err error) {
	switch {
	case err == nil:
		w.answered.Add(1)
	case errors.Is(err, errUnavailable) && connected.UnixNano() < w.restartEnd.Load():
		w.unavailable.Add(1)
	default:
		w.fault("%s: %v", who, err)
	}
}

func (w *world) recordSeen(n int64) {
	for seen := w.seen.Load(); n > seen && !w.seen.CompareAndSwap(seen, n); seen = w.seen.Load() {
	}
}

// load starts all clients, lets them run, and waits until the subscribers have caught up.
func (w *world) load(length time.Duration, restarts int) error {
	now, err := w.child.ask("state")
	if err != nil {
		return err
	}
	w.recordSeen(int64(now.Newest))
	w.client = &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: queriers}}
	defer w.client.CloseIdleConnections()
	w.begun = time.Now()
	w.pace.CompareAndSwap(0, int64(20*time.Millisecond))
	ctx, cancel := context.WithCancel(context.Background())
	var clients sync.WaitGroup
	defer clients.Wait()
	defer cancel()
	var subscribed []*subscriber
	for i := range subscribers {
		s := newSubscriber(w, i, now.Newest)
		subscribed = append(subscribed, s)
		clients.Go(func() { s.run(ctx) })
	}
	for range queriers {
		clients.Go(func() { w.query(ctx) })
	}
	for _, h := range hostiles() {
		for range h.number {
			clients.Go(func() { w.runHostile(ctx, h) })
		}
	}
	if err := w.controlLoad(length, restarts); err != nil {
		return err
	}
	return w.catchUp(subscribed, now.Newest)
}

// controlLoad adjusts the load until the run has taken the time length. It measures this time in ticks, which stop
// while the process is suspended, like the clients.
func (w *world) controlLoad(length time.Duration, restarts int) error {
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
		if err := w.adjustRate(); err != nil {
			return err
		}
		if since-shown >= w.every {
			shown += w.every
			if err := w.logFigures(); err != nil {
				return err
			}
		}
		if w.restarted < restarts && since > length*time.Duration(w.restarted+1)/time.Duration(restarts+1) {
			if err := w.restart(); err != nil {
				return err
			}
			since += shutdownTimeout
		}
	}
	return nil
}

// restart replaces the service while all clients continue.
func (w *world) restart() error {
	w.restartEnd.Store(math.MaxInt64)
	_, err := w.child.ask("replace")
	w.restartEnd.Store(time.Now().UnixNano())
	w.restarted++
	return err
}

// catchUp waits until each subscriber has received all blocks that were committed after block
// before.
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
			w.fault("%s lost blocks %d to %d", s.name, next, now.Newest)
		}
	}
	return nil
}

// adjustRate adjusts the query rate so that the service uses the target share of the CPU.
func (w *world) adjustRate() error {
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

// logFigures logs the current figures.
func (w *world) logFigures() error {
	h, err := w.child.ask("state")
	if err != nil {
		return err
	}
	w.t.Logf("%6v: %d requests (%v), honest errors %d, unavailable %d, queries %v, blocks %v, %v, %v",
		time.Since(w.begun).Round(time.Second), w.codes.sum(), &w.codes, w.wrong.Load(), w.unavailable.Load(),
		&w.latency, &w.delivery,
		w.recently, h)
	return nil
}

func jitter(most time.Duration) time.Duration { return time.Duration(rand.Int64N(int64(most) + 1)) }

// pause waits for d and reports whether ctx is not done.
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
