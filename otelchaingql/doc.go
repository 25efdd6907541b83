// Package otelchaingql tells OpenTelemetry what a [chaingql.Handler] does: a
// span for each operation, and metrics of operations, sockets, blocks, limits
// and the source.
//
//	h := chaingql.New(backend, &chaingql.Options{Hooks: otelchaingql.Hooks(nil)})
//	mux.Handle("/{project}/graphql", otelhttp.NewHandler(h, "graphql", otelhttp.WithServerName("api.example:443")))
//
// It depends on OpenTelemetry's API alone: which SDK there is, and where it
// exports to, Prometheus or a collector, is the host's choice. The README lists
// each metric, and why the spans are what they are.
package otelchaingql
