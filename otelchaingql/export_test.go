package otelchaingql

import (
	"strconv"

	"go.opentelemetry.io/otel/metric/noop"
)

// KeptKinds returns how many attribute sets are cached after n different kinds of operations have been counted.
func KeptKinds(n int) int {
	m := newMetrics(&Options{MeterProvider: noop.NewMeterProvider()}, nil)
	for i := range n {
		m.of(kind{project: strconv.Itoa(i)})
	}
	return len(m.operations.known)
}
