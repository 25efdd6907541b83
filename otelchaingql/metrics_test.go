package otelchaingql_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/otelchaingql"
)

// A meter contains hooks and reads the metrics that they create.
type meter struct {
	chaingql.Hooks
	t      *testing.T
	reader *sdkmetric.ManualReader
}

func metered(t *testing.T, opts otelchaingql.Options) *meter {
	m := &meter{t: t, reader: sdkmetric.NewManualReader()}
	opts.MeterProvider = sdkmetric.NewMeterProvider(sdkmetric.WithReader(m.reader))
	m.Hooks = otelchaingql.Hooks(&opts)
	return m
}

func (m *meter) collect() []metricdata.Metrics {
	m.t.Helper()
	var all metricdata.ResourceMetrics
	if err := m.reader.Collect(context.Background(), &all); err != nil {
		m.t.Fatal(err)
	}
	if len(all.ScopeMetrics) == 0 {
		return nil
	}
	equal(m.t, "scope", all.ScopeMetrics[0].Scope.Name, otelchaingql.Scope)
	return all.ScopeMetrics[0].Metrics
}

// read returns the value of each series. The keys consist of the metric's name and attributes. The value of a histogram
// consists of its count and sum.
func (m *meter) read() map[string]string {
	m.t.Helper()
	series := map[string]string{}
	put := func(name string, set attribute.Set, value any) {
		series[name+"{"+set.Encoded(attribute.DefaultEncoder())+"}"] = fmt.Sprint(value)
	}
	for _, metric := range m.collect() {
		switch data := metric.Data.(type) {
		case metricdata.Sum[int64]:
			for _, p := range data.DataPoints {
				put(metric.Name, p.Attributes, p.Value)
			}
		case metricdata.Gauge[int64]:
			for _, p := range data.DataPoints {
				put(metric.Name, p.Attributes, p.Value)
			}
		case metricdata.Gauge[float64]:
			for _, p := range data.DataPoints {
				put(metric.Name, p.Attributes, fmt.Sprintf("%.3f", p.Value))
			}
		case metricdata.Histogram[float64]:
			for _, p := range data.DataPoints {
				put(metric.Name, p.Attributes, fmt.Sprintf("%d in %gs", p.Count, p.Sum))
			}
		default:
			m.t.Errorf("%s has data of the unexpected type %T", metric.Name, data)
		}
	}
	return series
}

// expect checks that the series are those of want. Series with the value 0 may be missing in want.
func (m *meter) expect(what string, want map[string]string) {
	m.t.Helper()
	got := m.read()
	maps.DeleteFunc(got, func(series, value string) bool { _, wanted := want[series]; return value == "0" && !wanted })
	if !maps.Equal(got, want) {
		m.t.Errorf("%s:\n got %s\nwant %s", what, sorted(got), sorted(want))
	}
}

func sorted(series map[string]string) string {
	var lines []string
	for k, v := range series {
		lines = append(lines, k+" "+v)
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n     ")
}

// run calls the hooks for the start and the end of an operation.
func (m *meter) run(op chaingql.Operation, out chaingql.Outcome) {
	m.OperationFinished(m.OperationStarted(context.Background(), op), op, out)
}

var queryMine = chaingql.Operation{Type: "query", Name: "Mine", Hash: "c0ffee", Transport: "http", Project: "demo"}

func TestOperationsAreCountedAndTimed(t *testing.T) {
	m := metered(t, otelchaingql.Options{})
	m.run(queryMine, chaingql.Outcome{Duration: time.Second})
	m.run(queryMine, chaingql.Outcome{Duration: 2 * time.Second, Failed: true, Code: "TIMEOUT"})
	m.run(queryMine, chaingql.Outcome{Failed: true})
	m.run(subscriptionOf("sse"), chaingql.Outcome{Duration: time.Hour, Reason: chaingql.ReasonClient, Blocks: 7})
	m.run(subscriptionOf("graphql-ws"), chaingql.Outcome{Duration: time.Minute, Failed: true,
		Reason: chaingql.ReasonGap, Err: chaingql.ErrGap})
	m.OperationStarted(context.Background(), subscriptionOf("graphql-transport-ws"))
	const q, s = "graphql.operation.type=query}", "graphql.operation.type=subscription}"
	m.expect("operations", map[string]string{
		"chaingql.operations.started{chaingql.transport=http," + q:                              "3",
		"chaingql.operations.started{chaingql.transport=sse," + s:                               "1",
		"chaingql.operations.started{chaingql.transport=graphql-ws," + s:                        "1",
		"chaingql.operations.started{chaingql.transport=graphql-transport-ws," + s:              "1",
		"chaingql.operations.active{chaingql.transport=http," + q:                               "0",
		"chaingql.operations.active{chaingql.transport=sse," + s:                                "0",
		"chaingql.operations.active{chaingql.transport=graphql-ws," + s:                         "0",
		"chaingql.operations.active{chaingql.transport=graphql-transport-ws," + s:               "1",
		"chaingql.operations.failed{chaingql.transport=http,error.type=TIMEOUT," + q:            "1",
		"chaingql.operations.failed{chaingql.transport=http,error.type=_OTHER," + q:             "1",
		"chaingql.operations.failed{chaingql.transport=graphql-ws,error.type=gap," + s:          "1",
		"chaingql.query.duration{chaingql.transport=http," + q:                                  "1 in 1s",
		"chaingql.query.duration{chaingql.transport=http,error.type=TIMEOUT," + q:               "1 in 2s",
		"chaingql.query.duration{chaingql.transport=http,error.type=_OTHER," + q:                "1 in 0s",
		"chaingql.subscription.duration{chaingql.reason=client,chaingql.transport=sse," + s:     "1 in 3600s",
		"chaingql.subscription.duration{chaingql.reason=gap,chaingql.transport=graphql-ws," + s: "1 in 60s",
	})
}

func TestUnlistedOperationNamesCreateNoMetricSeries(t *testing.T) {
	m := metered(t, otelchaingql.Options{})
	for i := range 3000 {
		op := queryMine
		op.Name, op.Project, op.Hash = fmt.Sprint("N", i), fmt.Sprint("p", i), fmt.Sprint("h", i)
		m.run(op, chaingql.Outcome{})
	}
	got := m.read()
	maps.DeleteFunc(got, func(_, value string) bool { return value == "0" })
	equal(t, "series: "+sorted(got), len(got), 2)
}

func TestListedOperationNamesAndProjectsAreInMetrics(t *testing.T) {
	allowed := []string{"Mine", "Live"}
	m := metered(t, otelchaingql.Options{OperationNames: allowed, Projects: true})
	allowed[0] = "Stranger's"
	m.run(queryMine, chaingql.Outcome{})
	stranger := queryMine
	stranger.Name = "Stranger's"
	m.run(stranger, chaingql.Outcome{})
	got := m.read()
	for _, name := range []string{"Mine", "_OTHER"} {
		started := got["chaingql.operations.started{chaingql.project=demo,chaingql.transport=http,"+
			"graphql.operation.name="+name+",graphql.operation.type=query}"]
		equal(t, name, started, "1")
	}
}

// If there are more kinds of operations than maxKinds, the attribute sets of the others are created for each
// measurement.
func TestProjectsBeyondCacheAreCounted(t *testing.T) {
	m := metered(t, otelchaingql.Options{Projects: true})
	for i := range 5000 {
		op := queryMine
		op.Project = fmt.Sprint("p", i%2500)
		m.OperationStarted(context.Background(), op)
	}
	sum := int64(0)
	for _, metric := range m.collect() {
		if metric.Name == "chaingql.operations.started" {
			for _, p := range metric.Data.(metricdata.Sum[int64]).DataPoints {
				sum += p.Value
			}
		}
	}
	equal(t, "operations", sum, 5000)
	equal(t, "attributes that are kept", otelchaingql.KeptKinds(5000), 2000)
}

func TestOptionsAttributesAreOnAllMetrics(t *testing.T) {
	all := []attribute.KeyValue{attribute.String("chain", "test")}
	m := metered(t, otelchaingql.Options{Attributes: all})
	all[0] = attribute.String("chain", "another")
	m.everything()
	for series := range m.read() {
		if !strings.Contains(series, "chain=test") {
			t.Errorf("%s lacks the attributes", series)
		}
	}
}

func TestSocketsAreCounted(t *testing.T) {
	m := metered(t, otelchaingql.Options{})
	s := chaingql.Socket{Protocol: "graphql-ws", Project: "demo", Remote: "192.0.2.1:1"}
	m.SocketOpened(context.Background(), s)
	m.SocketOpened(context.Background(), s)
	m.SocketClosed(context.Background(), s, chaingql.ReasonCut, errors.New("too slow"))
	m.expect("sockets", map[string]string{
		"chaingql.sockets.active{chaingql.transport=graphql-ws}":                     "1",
		"chaingql.sockets.closed{chaingql.reason=cut,chaingql.transport=graphql-ws}": "1",
	})
}

func TestDeliveriesAreCountedAndLagOfLiveOnesIsMeasured(t *testing.T) {
	m := metered(t, otelchaingql.Options{})
	for _, from := range []chaingql.Source{"live", "live", "window", "backend"} {
		m.BlockDelivered(context.Background(), chaingql.Delivery{Operation: subscriptionOf("sse"), Source: from,
			Lag: 250 * time.Millisecond})
	}
	m.expect("deliveries", map[string]string{
		"chaingql.blocks.delivered{chaingql.origin=live,chaingql.transport=sse}":    "2",
		"chaingql.blocks.delivered{chaingql.origin=window,chaingql.transport=sse}":  "1",
		"chaingql.blocks.delivered{chaingql.origin=backend,chaingql.transport=sse}": "1",
		"chaingql.delivery.lag{chaingql.origin=live}":                               "2 in 0.5s",
		"chaingql.delivery.lag{chaingql.origin=window}":                             "1 in 0.25s",
	})
}

func TestSourceUpMetricShowsSourceState(t *testing.T) {
	m := metered(t, otelchaingql.Options{})
	up := func() string { return m.read()["chaingql.source.up{}"] }
	equal(t, "up before anything is known", up(), "")
	at := time.Unix(1_700_000_000, 250_000_000)
	block := func(t time.Time) chaingql.Block { return chaingql.Block{Time: t} }
	m.BlockReceived(block(at), 2*time.Second)
	equal(t, "up with a block", up(), "1")
	m.SourceFailed(fmt.Errorf("left out: %w", chaingql.ErrGap), 0)
	equal(t, "up after a gap", up(), "1")
	m.SourceFailed(errors.New("line cut"), time.Second)
	m.SourceFailed(errors.New("line cut"), time.Second)
	equal(t, "up after a failure", up(), "0")
	m.BlockReceived(block(at.Add(-time.Minute)), 62*time.Second) // a block that was missing
	equal(t, "up before the recovery is reported", up(), "0")
	equal(t, "time of the newest block", m.read()["chaingql.source.last_block.time{}"], "1700000000.250")
	m.SourceRecovered(3 * time.Second)
	equal(t, "up after the recovery", up(), "1")
	m.SourceFailed(chaingql.ErrSourceStalled, 0)
	m.BlockReceived(block(at.Add(time.Second)), -time.Second) // the source's clock is ahead
	m.BlockDropped(block(at))
	m.expect("the source", map[string]string{
		"chaingql.source.up{}":                        "0",
		"chaingql.source.last_block.time{}":           "1700000001.250",
		"chaingql.source.failures{error.type=gap}":    "1",
		"chaingql.source.failures{error.type=ended}":  "2",
		"chaingql.source.failures{error.type=silent}": "1",
		"chaingql.source.outage.duration{}":           "1 in 3s",
		"chaingql.blocks.received{}":                  "3",
		"chaingql.blocks.dropped{}":                   "1",
		"chaingql.receive.lag{}":                      "3 in 64s",
	})
	other := metered(t, otelchaingql.Options{})
	other.SourceFailed(errors.New("refused"), time.Second)
	equal(t, "up after a failure before any block", other.read()["chaingql.source.up{}"], "0")
}

// Prometheus notices the first event as an increase only if the series existed before the event.
func TestRareEventCountersStartAtZero(t *testing.T) {
	got := metered(t, otelchaingql.Options{}).read()
	for _, series := range []string{"chaingql.blocks.received{}", "chaingql.blocks.dropped{}",
		"chaingql.source.failures{error.type=ended}",
		"chaingql.source.failures{error.type=silent}", "chaingql.source.failures{error.type=gap}"} {
		equal(t, series, got[series], "0")
	}
}

func TestExceededLimitsAreCountedByName(t *testing.T) {
	m := metered(t, otelchaingql.Options{})
	m.LimitHit(context.Background(), "Depth")
	m.LimitHit(context.Background(), "Depth")
	m.LimitHit(context.Background(), "Connections")
	m.expect("limits", map[string]string{"chaingql.limits.hit{chaingql.limit=Depth}": "2",
		"chaingql.limits.hit{chaingql.limit=Connections}": "1"})
}

func TestQueryDurationHasExemplarOfItsSpan(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	m := metered(t, otelchaingql.Options{TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))})
	m.run(queryMine, chaingql.Outcome{Duration: time.Second})
	for _, metric := range m.collect() {
		if metric.Name == "chaingql.query.duration" {
			exemplars := metric.Data.(metricdata.Histogram[float64]).DataPoints[0].Exemplars
			if id := spans.Ended()[0].SpanContext().SpanID(); len(exemplars) != 1 ||
				string(exemplars[0].SpanID) != string(id[:]) {
				t.Errorf("exemplars %v, want one of %v", exemplars, id)
			}
		}
	}
}

// everything calls each hook, so that every metric and every attribute occurs.
func (m *meter) everything() {
	m.run(queryMine, chaingql.Outcome{Failed: true, Code: "TIMEOUT"})
	m.run(subscriptionOf("sse"), chaingql.Outcome{Failed: true, Reason: chaingql.ReasonLost})
	s := chaingql.Socket{Protocol: "graphql-ws"}
	m.SocketOpened(context.Background(), s)
	m.SocketClosed(context.Background(), s, chaingql.ReasonClient, nil)
	m.BlockReceived(chaingql.Block{Time: time.Unix(1, 0)}, time.Second)
	m.BlockDropped(chaingql.Block{})
	m.BlockDelivered(context.Background(), chaingql.Delivery{Operation: subscriptionOf("sse"), Source: "live"})
	m.SourceFailed(errors.New("line cut"), 0)
	m.SourceRecovered(time.Second)
	m.LimitHit(context.Background(), "Depth")
}
