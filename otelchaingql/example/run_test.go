package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/chaingql/chaingql/internal/testkit"
)

// printed records the output of the program.
type printed struct{ testkit.Buffer }

// await waits until the output contains before and after, and returns the text between them.
func (p *printed) await(t *testing.T, before, after string) string {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); <-time.After(time.Millisecond) {
		if _, rest, ok := strings.Cut(p.String(), before); ok {
			if found, _, ok := strings.Cut(rest, after); ok {
				return found
			}
		}
	}
	t.Fatalf("the output does not contain %q and %q: %s", before, after, p)
	return ""
}

func TestProgramExportsMetricsAndTraces(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var out printed
	done := make(chan error, 1)
	go func() {
		done <- run(ctx, []string{"-addr", "127.0.0.1:0", "-metrics-addr", "127.0.0.1:0", "-rate", "100",
			"-trouble", "20ms", "-traces", "stdout"}, &out)
	}()
	addr := out.await(t, "serving on http://", "/demo/graphql")
	metrics := out.await(t, "that Prometheus scrapes\ncurl http://", "/metrics\n")
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for url, want := range map[string]string{
		addr + "/demo/graphql?query={blockchain{blocks(last:1){edges{cursor}}}}": `{"data":`,
		addr + "/metrics":    "404 page not found", // not for clients of the API
		metrics + "/metrics": "go_goroutines",
	} {
		res, err := client.Get("http://" + url)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(res.Body)
		if _ = res.Body.Close(); err != nil || !strings.Contains(string(text), want) {
			t.Errorf("GET %s returned error %v and %s, want a text that contains %s", url, err, text, want)
		}
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	for _, span := range []string{`"Name": "query"`, `"Name": "GET /{project}/graphql"`} {
		if !strings.Contains(out.String(), span) {
			t.Errorf("no span %s was printed", span)
		}
	}
}

func TestProgramRejectsInvalidFlags(t *testing.T) {
	for _, args := range [][]string{{"-traces", "somewhere"}, {"-rate", "0"}, {"-addr", "nowhere"},
		{"-addr", "127.0.0.1:0", "-metrics-addr", "nowhere"}} {
		if err := run(t.Context(), args, io.Discard); err == nil {
			t.Errorf("run with the arguments %v returned no error", args)
		}
	}
}

func TestOTLPTracesReachCollector(t *testing.T) {
	came := make(chan string, 10)
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		came <- r.Method + " " + r.URL.Path
	}))
	defer collector.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	tel, err := openTelemetry(t.Context(), "otlp", io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	_, span := tel.tracers.Tracer("test").Start(t.Context(), "a span")
	span.End()
	if err := tel.shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	select {
	case got := <-came:
		if got != "POST /v1/traces" {
			t.Errorf("the collector received %s, want POST /v1/traces", got)
		}
	default:
		t.Error("the collector received nothing")
	}
}
