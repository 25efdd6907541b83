package otelchaingql

import (
	"strconv"

	"go.opentelemetry.io/otel/metric/noop"
)

// KeptKinds returns the number of attribute sets in the cache after operations of n kinds.
func KeptKinds(n int) int {
	m := newMetrics(&Options{MeterProvider: noop.NewMeterProvider()}, nil)
	for i := range n {
		m.of(kind{project: strconv.Itoa(i)})
	}
	return len(m.operations.known)
}
