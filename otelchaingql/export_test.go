package otelchaingql

import (
	"strconv"

	"go.opentelemetry.io/otel/metric/noop"
)

// KeptKinds is for how many of n kinds of operations attributes are kept.
func KeptKinds(n int) int {
	m := newMetrics(&Options{MeterProvider: noop.NewMeterProvider()}, nil)
	for i := range n {
		m.of(kind{project: strconv.Itoa(i)})
	}
	return len(m.operations.known)
}
