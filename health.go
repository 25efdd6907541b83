package chaingql

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/chaingql/chaingql/internal/gqlhttp"
	"github.com/chaingql/chaingql/internal/guard"
	"github.com/chaingql/chaingql/internal/xsync"
)

// A Pinger is a [Backend] that can check quickly whether it could serve a query now. [Handler.Health] calls Ping. For a
// Backend that is not a Pinger, it reads the newest block with Blocks.
type Pinger interface {
	// Ping makes a real call to the database or the node and returns its error, if any. It is called at most once a
	// second. ctx has a deadline of one second.
	Ping(ctx context.Context) error
}

// A Health describes the state of a [Handler]. Each part has the time at which it began or was observed, so that a
// reader can see how old it is.
type Health struct {
	// Ready reports whether the instance should receive clients: it is not draining, its source is live, and its
	// Backend has answered.
	Ready bool

	// Draining is the time at which Drain or Shutdown was called first. It is zero if neither was called.
	Draining time.Time

	// SourceLive reports whether the Backend's Follow runs, and since its last failure has yielded a block or has been
	// confirmed to be at the newest block. A source without new blocks may be live: a chain can pause.
	SourceLive bool

	// SourceSince is the time at which SourceLive changed last, or the time of New if it never changed.
	SourceSince time.Time

	// SourceErr is the last failure of a source that is not live. It is nil if the source has not failed yet.
	SourceErr error

	// BlockArrived is the time at which the newest block arrived from Follow. It is zero if none has arrived yet.
	BlockArrived time.Time

	// BlockInterval is the usual interval between blocks of the masterchain, or between all blocks if the chain has no
	// masterchain. It is zero if it is not known yet. If the time since BlockArrived is many times as long, the chain
	// has paused or the source is late.
	BlockInterval time.Duration

	// BackendErr is the error of the last Backend call that Health made, or nil if the call succeeded.
	BackendErr error

	// BackendChecked is the time at which the last Backend call of Health ended.
	BackendChecked time.Time
}

// Health returns the current state of h. It makes a call of the Backend, with a timeout of one second, unless the last
// one began less than a second ago. Health makes h follow the Backend, as the first query does, so that an instance
// becomes ready without a client.
func (h *Handler) Health(ctx context.Context) Health {
	blocks := h.chains.current().blocks
	blocks.Start()
	checked, backendErr := h.backendCheck.result(ctx)
	source, w := blocks.State(), blocks.Window()
	_, interval := newest(w, dependency{workchain: masterchain, balance: true})
	s := Health{
		SourceLive: source.Live, SourceSince: source.Since, SourceErr: source.Err,
		BlockArrived: w.Arrived, BlockInterval: interval,
		BackendErr: backendErr, BackendChecked: checked,
	}
	if began := h.draining.Load(); began != nil {
		s.Draining = *began
	}
	s.Ready = s.Draining.IsZero() && s.SourceLive && s.BackendErr == nil
	return s
}

// ServeReady is a handler for readiness probes, such as those of Kubernetes and of proxies. The status is 200 if
// [Handler.Health] reports that h is ready, and otherwise 503. The body is a JSON object with the state of each part
// and its age in seconds; it contains no text of errors. It may be public: probes cause at most one call of the Backend
// per second.
//
//	mux.HandleFunc("GET /readyz", h.ServeReady)
//	mux.HandleFunc("GET /livez", func(http.ResponseWriter, *http.Request) {}) // the process responds
//
// A liveness probe must not depend on the Backend, because a restart does not repair a database. If all instances use
// one database and it is down, all of them are not ready. See "Readiness" in docs/hosting.md for proxies that then
// refuse all clients.
func (h *Handler) ServeReady(w http.ResponseWriter, r *http.Request) {
	s := h.Health(r.Context())
	body := healthJSON{Ready: s.Ready}
	body.Draining.Active, body.Draining.For = !s.Draining.IsZero(), age(s.Draining)
	body.Source.Live, body.Source.For = s.SourceLive, age(s.SourceSince)
	body.Source.BlockAge, body.Source.BlockInterval = age(s.BlockArrived), s.BlockInterval.Seconds()
	body.Backend.OK, body.Backend.Age = s.BackendErr == nil, age(s.BackendChecked)
	status := statusReady
	if !s.Ready {
		status = statusNotReady
	}
	w.Header()["Cache-Control"] = gqlhttp.NoStore
	text, _ := json.Marshal(body) // cannot fail
	h.write(w, r, h.statusCode(status, gqlhttp.JSON), gqlhttp.JSON, append(text, '\n'))
}

// healthJSON is the response of ServeReady.
type healthJSON struct {
	Ready    bool `json:"ready"`
	Draining struct {
		Active bool     `json:"active"`
		For    *float64 `json:"for_s"`
	} `json:"draining"`
	Source struct {
		Live          bool     `json:"live"`
		For           *float64 `json:"for_s"`
		BlockAge      *float64 `json:"block_age_s"`
		BlockInterval float64  `json:"block_interval_s"`
	} `json:"source"`
	Backend struct {
		OK  bool     `json:"ok"`
		Age *float64 `json:"age_s"`
	} `json:"backend"`
}

// age returns the time since t in seconds, or nil if t is zero.
func age(t time.Time) *float64 {
	if t.IsZero() {
		return nil
	}
	s := time.Since(t).Round(time.Millisecond).Seconds()
	return &s
}

const (
	backendCheckInterval = time.Second // minimum time between the starts of two checks of the Backend
	backendCheckTimeout  = time.Second
)

// A backendCheck calls the Backend for Health and keeps the last result.
type backendCheck struct {
	call  func(context.Context) error
	log   *slog.Logger
	group xsync.Group[struct{}, struct{}] // concurrent callers share a call

	mu           sync.Mutex
	began, ended time.Time // of the last call
	err          error
}

// newBackendCheck returns the check of a Backend.
func newBackendCheck(b Backend, log *slog.Logger) *backendCheck {
	c := &backendCheck{log: log, call: func(ctx context.Context) error {
		_, err := b.Blocks(ctx, BlocksQuery{Last: 1})
		return err
	}}
	if p, ok := b.(Pinger); ok {
		c.call = p.Ping
	}
	return c
}

// result returns the result of the last call and the time at which it ended. It makes a new call if the last one began
// too long ago. A caller's ctx does not end the call, because others may wait for it or use its result.
func (c *backendCheck) result(ctx context.Context) (ended time.Time, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), backendCheckTimeout)
	defer cancel()
	if _, err := c.group.Do(ctx, struct{}{}, nil, func(context.Context) (struct{}, error) {
		c.check(ctx)
		return struct{}{}, nil
	}); err != nil {
		return time.Now(), err // the call has not ended in time
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended, c.err
}

// check calls the Backend if the last call began too long ago. It logs a result that differs from the last one.
func (c *backendCheck) check(ctx context.Context) {
	c.mu.Lock()
	now, before := time.Now(), c.err
	if now.Sub(c.began) < backendCheckInterval {
		c.mu.Unlock()
		return
	}
	c.began = now
	c.mu.Unlock()
	var err error
	if failed := guard.RunApart(func() { err = c.call(ctx) }); failed != nil {
		err = failed
	}
	c.mu.Lock()
	c.err, c.ended = err, time.Now()
	c.mu.Unlock()
	switch {
	case err != nil && before == nil:
		c.log.WarnContext(ctx, "chaingql: backend check failed; the instance is not ready",
			guard.Error(err), guard.Stack(err))
	case err == nil && before != nil:
		c.log.InfoContext(ctx, "chaingql: backend check succeeded after a failure")
	}
}
