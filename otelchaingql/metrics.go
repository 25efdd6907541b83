package otelchaingql

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/chaingql/chaingql"
)

// These are the bucket boundaries of the histograms, in seconds.
var (
	// A query takes microseconds if it is served from memory. Otherwise each of its Backend calls takes at most
	// Limits.BackendTimeout.
	boundsQuery = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
	// Chains and indexers publish a block some seconds after its generation.
	boundsReceive = []float64{.1, .25, .5, 1, 2, 3, 5, 7.5, 10, 15, 30, 60, 120, 300, 900, 3600}
	// A live subscriber receives a block within microseconds. A lagging subscriber receives it within a minute.
	boundsDelivery = []float64{.0001, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}
	// Subscriptions last as long as a page is open or a service is running.
	boundsLong = []float64{1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 12 * 3600, 24 * 3600, 7 * 24 * 3600}
	// The first retry of the source follows after milliseconds.
	boundsOutage = []float64{.1, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 900, 3600, 4 * 3600}
)

// metrics holds the instruments and their attributes. The attribute sets of frequent measurements are precomputed.
type metrics struct {
	operationsStarted, operationsFailed            metric.Int64Counter
	operationsActive                               metric.Int64UpDownCounter
	queryDuration, subscriptionDuration            metric.Float64Histogram
	socketsActive                                  metric.Int64UpDownCounter
	socketsClosed                                  metric.Int64Counter
	blocksReceived, blocksDropped, blocksDelivered metric.Int64Counter
	receiveLag, deliveryLag                        metric.Float64Histogram
	limitsHit                                      metric.Int64Counter
	up                                             metric.Int64Gauge
	lastBlock                                      metric.Float64Gauge
	failures                                       metric.Int64Counter
	outage                                         metric.Float64Histogram

	names    names
	projects bool
	fixed    []attribute.KeyValue // attributes of all metrics
	always   metric.MeasurementOption

	byTransport byTransport
	byType      [len(types)]byTransport
	deliveries  [len(transports)][len(origins)][]metric.AddOption
	lags        [len(origins)][]metric.RecordOption
	failed      map[string]metric.MeasurementOption
	operations  operations
	source      source
}

func newMetrics(o *Options, names names) *metrics {
	meter := o.MeterProvider.Meter(Scope, metric.WithInstrumentationVersion(chaingql.Version),
		metric.WithSchemaURL(semconv.SchemaURL))
	in := instruments{meter}
	m := &metrics{
		operationsStarted: in.counter("chaingql.operations.started", "{operation}",
			"Operations that passed all checks and were started."),
		operationsFailed: in.counter("chaingql.operations.failed", "{operation}",
			"Queries with errors in the response, and subscriptions that ended against the client's will."),
		operationsActive: in.level("chaingql.operations.active", "{operation}",
			"Operations in progress: subscriptions and running queries."),
		queryDuration:        in.histogram("chaingql.query.duration", "Duration of a query.", boundsQuery),
		subscriptionDuration: in.histogram("chaingql.subscription.duration", "Duration of a subscription.", boundsLong),
		socketsActive:        in.level("chaingql.sockets.active", "{socket}", "Open WebSockets."),
		socketsClosed:        in.counter("chaingql.sockets.closed", "{socket}", "Closed WebSockets."),
		blocksReceived:       in.counter("chaingql.blocks.received", "{block}", "New blocks from the source."),
		blocksDropped: in.counter("chaingql.blocks.dropped", "{block}",
			"Blocks that the source repeated or sent out of order."),
		blocksDelivered: in.counter("chaingql.blocks.delivered", "{block}",
			"Blocks passed to the connections of subscriptions."),
		receiveLag: in.histogram("chaingql.receive.lag",
			"Time from the generation of a block until it was received.", boundsReceive),
		deliveryLag: in.histogram("chaingql.delivery.lag",
			"Time from the receipt of a block until it was passed to the connection of a subscription.",
			boundsDelivery),
		limitsHit: in.counter("chaingql.limits.hit", "{hit}",
			"Refused or aborted operations and connections, by limit."),
		failures: in.counter("chaingql.source.failures", "{failure}", "Failures of the source."),
		outage: in.histogram("chaingql.source.outage.duration",
			"Time from the first failure of the source, or its last block, until the next block.", boundsOutage),
		names: names, projects: o.Projects, fixed: o.Attributes,
	}
	m.up = checked(meter.Int64Gauge("chaingql.source.up", metric.WithUnit("{source}"),
		metric.WithDescription("1 while the source yields blocks, 0 while it fails or is silent; "+
			"absent until it is first read.")))
	m.lastBlock = checked(meter.Float64Gauge("chaingql.source.last_block.time", metric.WithUnit("s"),
		metric.WithDescription("Unix time at which the newest received block was generated.")))
	m.always = m.with()
	m.byTransport = m.transports()
	for i, t := range types {
		m.byType[i] = m.transports(operationType(t))
	}
	for i, t := range transports {
		for j, from := range origins {
			m.deliveries[i][j] = []metric.AddOption{m.with(transport(t), keyOrigin.String(string(from)))}
		}
	}
	for j, from := range origins {
		m.lags[j] = []metric.RecordOption{m.with(keyOrigin.String(string(from)))}
	}
	m.operations.known = map[kind]metric.MeasurementOption{}
	m.failed = map[string]metric.MeasurementOption{}
	// The counters of rare events start at zero, so that an alert on an increase also notices the first event.
	for _, what := range []string{failureEnded, failureSilent, failureGap} {
		m.failed[what] = m.with(semconv.ErrorTypeKey.String(what))
		m.failures.Add(context.Background(), 0, m.failed[what])
	}
	m.blocksReceived.Add(context.Background(), 0, m.always)
	m.blocksDropped.Add(context.Background(), 0, m.always)
	return m
}

// instruments creates instruments from a Meter and passes errors to otel.Handle.
type instruments struct{ metric.Meter }

// checked passes err to otel.Handle and returns the instrument. If err is not nil, the instrument does nothing, but can
// still be used.
func checked[I any](instrument I, err error) I {
	if err != nil {
		otel.Handle(err)
	}
	return instrument
}

func (in instruments) counter(name, unit, about string) metric.Int64Counter {
	return checked(in.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(about)))
}

func (in instruments) level(name, unit, about string) metric.Int64UpDownCounter {
	return checked(in.Int64UpDownCounter(name, metric.WithUnit(unit), metric.WithDescription(about)))
}

func (in instruments) histogram(name, about string, bounds []float64) metric.Float64Histogram {
	return checked(in.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(about),
		metric.WithExplicitBucketBoundaries(bounds...)))
}

// with returns the attribute set of a measurement: the given attributes and those of all metrics.
func (m *metrics) with(attributes ...attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(slices.Concat(m.fixed, attributes)...))
}

// byTransport holds an attribute set for each of the transports.
type byTransport [len(transports)][]metric.AddOption

// transports returns attribute sets that consist of a transport and the given attributes.
func (m *metrics) transports(more ...attribute.KeyValue) (by byTransport) {
	for i, t := range transports {
		by[i] = []metric.AddOption{m.with(append(more[:len(more):len(more)], transport(t))...)}
	}
	return by
}

// at returns the attribute set of the given transport. The transport must be one of transports.
func (by *byTransport) at(transport chaingql.Transport) []metric.AddOption {
	return by[max(0, slices.Index(transports[:], transport))]
}

// A kind is a combination of attribute values under which operations are counted.
type kind struct {
	typ                            chaingql.OperationType
	transport                      chaingql.Transport
	name, project, failure, reason string
}

// operations caches the attribute set of each kind that has occurred.
type operations struct {
	mu    sync.RWMutex
	known map[kind]metric.MeasurementOption
}

// maxKinds is the maximum number of attribute sets in operations.known. The sets of further kinds are built for each
// operation: the number of kinds has no limit if the project is an attribute.
const maxKinds = 2000

func (m *metrics) kind(op chaingql.Operation) kind {
	k := kind{typ: op.Type, transport: op.Transport, name: m.names.of(op.Name)}
	if m.projects {
		k.project = short(op.Project)
	}
	return k
}

// of returns the attribute set of a kind.
func (m *metrics) of(k kind) metric.MeasurementOption {
	o := &m.operations
	o.mu.RLock()
	known := o.known[k]
	o.mu.RUnlock()
	if known != nil {
		return known
	}
	attributes := []attribute.KeyValue{operationType(k.typ), transport(k.transport)}
	for _, a := range []attribute.KeyValue{semconv.GraphQLOperationName(k.name), keyProject.String(k.project),
		semconv.ErrorTypeKey.String(k.failure), keyReason.String(k.reason)} {
		if a.Value.AsString() != "" {
			attributes = append(attributes, a)
		}
	}
	known = m.with(attributes...)
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.known) < maxKinds {
		o.known[k] = known
	}
	return known
}

func (m *metrics) active(op chaingql.Operation) []metric.AddOption {
	return m.byType[max(0, slices.Index(types[:], op.Type))].at(op.Transport)
}

func (m *metrics) operationStarted(ctx context.Context, op chaingql.Operation) {
	m.operationsActive.Add(ctx, 1, m.active(op)...)
	m.operationsStarted.Add(ctx, 1, m.of(m.kind(op)))
}

func (m *metrics) operationFinished(ctx context.Context, op chaingql.Operation, out chaingql.Outcome) {
	m.operationsActive.Add(ctx, -1, m.active(op)...)
	k := m.kind(op)
	if k.failure = failureOf(out); out.Failed {
		m.operationsFailed.Add(ctx, 1, m.of(k))
	}
	if op.Type != chaingql.OperationSubscription {
		m.queryDuration.Record(ctx, out.Duration.Seconds(), m.of(k))
		return
	}
	k.failure, k.reason = "", string(out.Reason)
	m.subscriptionDuration.Record(ctx, out.Duration.Seconds(), m.of(k))
}

func (m *metrics) blockReceived(b chaingql.Block, lag time.Duration) {
	ctx := context.Background()
	m.blocksReceived.Add(ctx, 1, m.always)
	m.receiveLag.Record(ctx, max(0, lag.Seconds()), m.always) // 0 if clocks differ, because the sum must not decrease
	m.source.mu.Lock()
	defer m.source.mu.Unlock()
	if !m.source.heard {
		m.source.heard = true
		m.up.Record(ctx, 1, m.always)
	}
	if b.Time.After(m.source.newest) {
		m.source.newest = b.Time
		m.lastBlock.Record(ctx, float64(b.Time.UnixMicro())/1e6, m.always)
	}
}

// blockDelivered is called for every block and subscriber. It takes no context, because an exemplar would refer to the
// subscription's span, which ended long ago.
func (m *metrics) blockDelivered(d *chaingql.Delivery) {
	t, from := max(0, slices.Index(transports[:], d.Operation.Transport)), max(0, slices.Index(origins[:], d.Source))
	m.blocksDelivered.Add(context.Background(), 1, m.deliveries[t][from]...)
	if d.Source != chaingql.SourceBackend { // its lag is unknown
		m.deliveryLag.Record(context.Background(), d.Lag.Seconds(), m.lags[from]...)
	}
}

// source holds the last known state of the source.
type source struct {
	mu     sync.Mutex
	heard  bool      // whether the state of the source is known
	newest time.Time // time of the newest block
}

func (m *metrics) sourceUp(up bool) {
	m.source.mu.Lock()
	defer m.source.mu.Unlock()
	m.source.heard = true
	var state int64
	if up {
		state = 1
	}
	m.up.Record(context.Background(), state, m.always)
}

// These are the values of error.type for failures of the source.
const (
	failureEnded  = "ended"
	failureSilent = "silent"
	failureGap    = "gap"
)

// sourceFailed counts a failure of the source. After a gap, the source still counts as up, because its stream
// continues.
func (m *metrics) sourceFailed(err error) {
	what := failureEnded
	switch {
	case errors.Is(err, chaingql.ErrGap):
		what = failureGap
	case errors.Is(err, chaingql.ErrSourceStalled):
		what = failureSilent
	}
	if what != failureGap {
		m.sourceUp(false)
	}
	m.failures.Add(context.Background(), 1, m.failed[what])
}
