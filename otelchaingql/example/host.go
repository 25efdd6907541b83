package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/attribute"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
	"github.com/chaingql/chaingql/otelchaingql"
)

// A host serves a chain and its metrics.
type host struct {
	chain   *memchain.Chain
	handler *chaingql.Handler
	mux     *http.ServeMux // the API
	metrics *http.ServeMux // for a listener of its own that clients cannot reach
}

// newHost returns a host that serves backend with telemetry. backend may be chain itself.
func newHost(t *telemetry, chain *memchain.Chain, backend chaingql.Backend) *host {
	h := &host{chain: chain, mux: http.NewServeMux(), metrics: http.NewServeMux()}
	h.handler = chaingql.New(backend, &chaingql.Options{
		AllowedOrigins: []string{"*"},
		Hooks: otelchaingql.Hooks(&otelchaingql.Options{
			TracerProvider: t.tracers, MeterProvider: t.meters, Propagator: t.propagator,
			Attributes: []attribute.KeyValue{attribute.String("chain", "simulated")},
		}),
	})
	// otelhttp wraps the Handler and not the mux, so that spans contain the pattern of the mux. Without a server name,
	// the Host header of clients would be an attribute, with a time series for each value.
	served := otelhttp.NewHandler(h.handler, "graphql", otelhttp.WithServerName("example:80"),
		otelhttp.WithTracerProvider(t.tracers), otelhttp.WithMeterProvider(t.meters),
		otelhttp.WithPropagators(t.propagator))
	chaingql.Mount(h.mux, "/{project}/graphql", served)
	chaingql.Mount(h.mux, "/graphql", served) // for clients that send no project
	h.metrics.Handle("/metrics", promhttp.HandlerFor(t.registry, promhttp.HandlerOpts{EnableOpenMetrics: true}))
	return h
}

var errTrouble = errors.New("simulated source failure")

// simulate appends a block at each interval of length every until ctx is done. If trouble is not 0, the source fails
// once in each interval of length trouble.
func (h *host) simulate(ctx context.Context, every, trouble time.Duration) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	last := time.Now()
	for seqNo := uint32(1); ; seqNo++ {
		if err := h.grow(seqNo); err != nil {
			return err
		}
		if trouble > 0 && time.Since(last) >= trouble {
			h.chain.Interrupt(errTrouble)
			last = time.Now()
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// kept is the maximum number of blocks that the chain keeps.
const kept = 10_000

// grow appends a masterchain block with the given sequence number and removes blocks that are too old.
func (h *host) grow(seqNo uint32) error {
	const shard = 1 << 63
	if seqNo > kept {
		h.chain.Prune(chaingql.ChainOrder(-1, shard, seqNo-kept, 0))
	}
	return h.chain.Append(chaingql.Block{
		Workchain: -1, Shard: shard, SeqNo: seqNo, Time: time.Now(),
		Hash: sha256.Sum256(fmt.Append(nil, seqNo)), Cursor: chaingql.ChainOrder(-1, shard, seqNo, 0),
	})
}
