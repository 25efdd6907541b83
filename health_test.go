package chaingql_test

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

// A breakable chain is a Backend that can lose its database.
type breakable struct {
	*memchain.Chain
	down  atomic.Pointer[error] // the error of each call, or nil
	pings atomic.Int64
	seqNo uint32
}

func newBreakable() *breakable { return &breakable{Chain: memchain.New()} }

// breakDown makes all calls fail with err, and ends Follow.
func (b *breakable) breakDown(err error) {
	b.down.Store(&err)
	b.Interrupt(err)
}

func (b *breakable) restore() { b.down.Store(nil) }

// err returns the error of a call. The error errFrozen is preceded by a wait for the end of ctx.
func (b *breakable) err(ctx context.Context) error {
	down := b.down.Load()
	if down == nil {
		return nil
	}
	if *down == errFrozen {
		<-ctx.Done()
		return ctx.Err()
	}
	return *down
}

// errFrozen makes a breakable hang until the context is done.
var errFrozen = errors.New("frozen")

func (b *breakable) Ping(ctx context.Context) error {
	b.pings.Add(1)
	return b.err(ctx)
}

func (b *breakable) Blocks(ctx context.Context, q chaingql.BlocksQuery) ([]chaingql.Block, error) {
	if err := b.err(ctx); err != nil {
		return nil, err
	}
	return b.Chain.Blocks(ctx, q)
}

func (b *breakable) Follow(ctx context.Context, after chaingql.Cursor) iter.Seq2[chaingql.Block, error] {
	return func(yield func(chaingql.Block, error) bool) {
		if err := b.err(ctx); err != nil {
			yield(chaingql.Block{}, err)
			return
		}
		b.Chain.Follow(ctx, after)(yield)
	}
}

// grow appends n masterchain blocks.
func (b *breakable) grow(t *testing.T, n int) {
	t.Helper()
	for range n {
		b.seqNo++
		err := b.Append(chaingql.Block{Workchain: -1, Shard: wholeShard, SeqNo: b.seqNo, Time: time.Now(),
			Cursor: chaingql.SeqCursor(uint64(b.seqNo))})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// probe requests the readiness as a load balancer does.
func probe(t *testing.T, h *chaingql.Handler) (status int, state map[string]map[string]any) {
	t.Helper()
	w := do(http.HandlerFunc(h.ServeReady), "GET", "/readyz", "")
	equal(t, "Cache-Control", w.Header().Get("Cache-Control"), "no-store")
	var body map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
		t.Fatalf("the response is not JSON: %v: %s", err, w.Body)
	}
	if body["ready"] != (w.Code == http.StatusOK) {
		t.Errorf("the status is %d, but the response is %s", w.Code, w.Body)
	}
	if strings.Contains(w.Body.String(), "secret") {
		t.Errorf("the response contains an error's text: %s", w.Body)
	}
	state = map[string]map[string]any{}
	for _, part := range []string{"draining", "source", "backend"} {
		state[part], _ = body[part].(map[string]any)
	}
	return w.Code, state
}

func TestInstanceBecomesReadyWithoutClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreakable()
		b.grow(t, 1)
		h, _ := newHandler(t, b, chaingql.Options{})
		if status, state := probe(t, h); status != 503 && state["source"]["live"] != true {
			t.Errorf("the first probe returned status %d and %v", status, state)
		}
		synctest.Wait()
		if status, state := probe(t, h); status != 200 {
			t.Errorf("with a source that answers, the status is %d, want 200: %v", status, state)
		}
		for range 4 {
			time.Sleep(2 * time.Second)
			b.grow(t, 1)
		}
		time.Sleep(500 * time.Millisecond)
		_, state := probe(t, h)
		equal(t, "age of the newest block", state["source"]["block_age_s"], any(0.5))
		equal(t, "usual interval", state["source"]["block_interval_s"], any(2.0))
		equal(t, "time since the source became live", state["source"]["for_s"], any(8.5))
	})
}

func TestInstanceThatStartsWithoutItsDatabaseIsNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreakable()
		b.breakDown(errors.New("secret: connection refused"))
		h, _ := newHandler(t, b, chaingql.Options{})
		for range 60 {
			if status, state := probe(t, h); status != 503 || state["source"]["live"] != false {
				t.Fatalf("without a database, the status is %d, want 503: %v", status, state)
			}
			time.Sleep(time.Second)
		}
		b.restore()
		time.Sleep(15 * time.Second)
		if status, state := probe(t, h); status != 200 {
			t.Errorf("with a database, the status is %d, want 200: %v", status, state)
		}
	})
}

// The chain is quiet during and after the outage, so only a check can show that the source answers again.
func TestReadinessFollowsTheSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreakable()
		b.grow(t, 3)
		h, _ := newHandler(t, stubBackend{Backend: b}, chaingql.Options{}) // not a Pinger
		probe(t, h)
		time.Sleep(time.Minute)
		for range 2 {
			time.Sleep(2 * time.Second)
			b.breakDown(errors.New("secret: connection reset"))
			synctest.Wait()
			status, state := probe(t, h)
			if status != 503 || state["source"]["live"] != false {
				t.Errorf("with a source that failed, the status is %d, want 503: %v", status, state)
			}
			health := h.Health(t.Context())
			if health.SourceErr == nil || health.BackendErr == nil {
				t.Errorf("the causes are %v and %v, want both", health.SourceErr, health.BackendErr)
			}
			time.Sleep(55 * time.Second)
			_, state = probe(t, h)
			equal(t, "duration of the outage", state["source"]["for_s"], any(55.0))
			b.restore()
			time.Sleep(15 * time.Second)
			if status, state := probe(t, h); status != 200 {
				t.Errorf("with a source that answers again, the status is %d, want 200: %v", status, state)
			}
		}
	})
}

func TestQuietChainStaysReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreakable()
		b.grow(t, 3)
		h, log := newHandler(t, b, chaingql.Options{})
		probe(t, h)
		time.Sleep(10 * chaingql.DefaultStallTimeout)
		if !strings.Contains(log.String(), "is silent") {
			t.Fatalf("the chain was not quiet long enough:\n%s", log)
		}
		status, state := probe(t, h)
		if status != 200 {
			t.Errorf("the status is %d, want 200: %v", status, state)
		}
		// It was live throughout: also while its silence was noticed and it was checked.
		equal(t, "time since the source became live", state["source"]["for_s"],
			any((10 * chaingql.DefaultStallTimeout).Seconds()))
	})
}

// Without a new block, the source would be live only after the next check, a second later.
func TestNewBlockMakesAFailedSourceLiveAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreakable()
		b.grow(t, 1)
		h, _ := newHandler(t, b, chaingql.Options{})
		probe(t, h)
		synctest.Wait() // until Follow has begun: a first reading of the newest block would count as an answer
		b.breakDown(errors.New("connection reset"))
		synctest.Wait()
		b.restore()
		time.Sleep(300 * time.Millisecond) // Follow begins again
		if status, state := probe(t, h); status != 503 {
			t.Errorf("without a block since the failure, the status is %d, want 503: %v", status, state)
		}
		b.grow(t, 1)
		synctest.Wait()
		if status, state := probe(t, h); status != 200 {
			t.Errorf("with a block, the status is %d, want 200: %v", status, state)
		}
	})
}

// A connection that was cut without a reset keeps Follow waiting. The calls of the Backend show the outage.
func TestInstanceWithFrozenSourceIsNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreakable()
		b.grow(t, 3)
		h, _ := newHandler(t, b, chaingql.Options{})
		probe(t, h)
		time.Sleep(time.Minute)
		frozen := errFrozen
		b.down.Store(&frozen)
		asked := time.Now()
		status, state := probe(t, h)
		if status != 503 || state["backend"]["ok"] != false {
			t.Errorf("with a frozen database, the status is %d, want 503: %v", status, state)
		}
		equal(t, "duration of the probe", time.Since(asked), time.Second)
		time.Sleep(chaingql.DefaultStallTimeout + 10*time.Second)
		if _, state = probe(t, h); state["source"]["live"] != false {
			t.Errorf("after the source has been silent and did not answer, it is live: %v", state)
		}
		b.restore()
		time.Sleep(10 * time.Second)
		if status, state := probe(t, h); status != 200 {
			t.Errorf("with a database, the status is %d, want 200: %v", status, state)
		}
	})
}

func TestProbesCallTheBackendAtMostOncePerSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreakable()
		h, _ := newHandler(t, b, chaingql.Options{})
		for range 20 {
			var all sync.WaitGroup
			for range 50 {
				all.Go(func() { h.Health(t.Context()) })
			}
			all.Wait()
			time.Sleep(100 * time.Millisecond)
		}
		equal(t, "calls in two seconds", b.pings.Load(), 2)
	})
}

func TestDrainingInstanceServesEverythingButIsNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreakable()
		b.grow(t, 3)
		h, _ := newHandler(t, b, chaingql.Options{})
		n := serve(t, mounted(h))
		probe(t, h)
		time.Sleep(time.Second)
		began := time.Now()
		drained := make(chan time.Duration)
		go func() {
			h.Drain(t.Context(), 5*time.Second)
			drained <- time.Since(began)
		}()
		time.Sleep(4 * time.Second)
		status, state := probe(t, h)
		if status != 503 || state["draining"]["active"] != true || state["draining"]["for_s"] != 4.0 {
			t.Errorf("while the instance drains, the status is %d, want 503: %v", status, state)
		}
		equal(t, "a query", n.ask(t, "POST", "{__typename}", nil, ""), `{"data":{"__typename":"Query"}}`)
		s := n.stream(t, `subscription{blocks{seq_no}}`)
		synctest.Wait()
		s.expect("a new stream", ":")
		b.grow(t, 1)
		s.expect("a new stream", "event: next", "id: 04", `data: {"data":{"blocks":{"seq_no":4}}}`)
		equal(t, "duration of Drain", <-drained, 5*time.Second)
	})
}

// driveCheck makes checks of the Backend fail, once with an error and once with a panic, and then succeed.
func driveCheck(t *testing.T, log *slog.Logger) {
	withErrorAndPanic(func(fail func() error) {
		var repaired atomic.Bool
		h, _ := newLoggedHandler(t, log, failingPages(memchain.New(), func(chaingql.BlocksQuery) error {
			if repaired.Load() {
				return nil
			}
			return fail()
		}), chaingql.Options{})
		h.Health(t.Context())
		time.Sleep(time.Minute)
		repaired.Store(true)
		h.Health(t.Context())
	})
}
