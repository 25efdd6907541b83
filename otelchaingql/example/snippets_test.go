package main

import (
	"log"
	"net/http"

	client "github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
	"github.com/chaingql/chaingql/otelchaingql"
)

// The README of the module shows the code of these functions.

func Example_mount() {
	backend, mux := memchain.New(), http.NewServeMux()

	h := chaingql.New(backend, &chaingql.Options{Hooks: otelchaingql.Hooks(nil)})
	served := otelhttp.NewHandler(h, "graphql", otelhttp.WithServerName("api.example:443"))
	chaingql.Mount(mux, "/{project}/graphql", served)
}

func Example_prometheus() {
	registry := client.NewRegistry()

	// The package prometheus is go.opentelemetry.io/otel/exporters/prometheus.
	exporter, err := prometheus.New(prometheus.WithRegisterer(registry))
	if err != nil {
		log.Fatal(err)
	}
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter))
	hooks := otelchaingql.Hooks(&otelchaingql.Options{MeterProvider: meters})

	_ = chaingql.New(memchain.New(), &chaingql.Options{Hooks: hooks})
}
