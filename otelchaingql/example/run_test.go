package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// printed keeps what a program prints.
type printed struct {
	mu   sync.Mutex
	text strings.Builder
}

func (p *printed) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(b)
}

func (p *printed) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// await waits for what is between two texts.
func (p *printed) await(t *testing.T, before, after string) string {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); <-time.After(time.Millisecond) {
		if _, rest, ok := strings.Cut(p.String(), before); ok {
			if found, _, ok := strings.Cut(rest, after); ok {
				return found
			}
		}
	}
	t.Fatalf("no %q in %s", before, p)
	return ""
}

func TestTheProgramServesMetricsAndTracesAndStopsCleanly(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var out printed
	done := make(chan error, 1)
	go func() {
		done <- run(ctx, []string{"-addr", "127.0.0.1:0", "-rate", "100", "-trouble", "20ms", "-traces", "stdout"}, &out)
	}()
	addr := out.await(t, "serving on http://", "/demo/graphql")
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for url, want := range map[string]string{
		"/demo/graphql?query={blockchain{blocks(last:1){edges{cursor}}}}": `{"data":`,
		"/metrics": "go_goroutines",
	} {
		res, err := client.Get("http://" + addr + url)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(res.Body)
		if _ = res.Body.Close(); err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s: %v, %s, want %s in it", url, err, text, want)
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

func TestTheProgramRefusesWhatMakesNoSense(t *testing.T) {
	for _, args := range [][]string{{"-traces", "somewhere"}, {"-rate", "0"}, {"-addr", "nowhere"}} {
		if err := run(t.Context(), args, io.Discard); err == nil {
			t.Errorf("%v is taken", args)
		}
	}
}

func TestTracesGoToACollector(t *testing.T) {
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
			t.Errorf("the collector got %s", got)
		}
	default:
		t.Error("the collector got nothing")
	}
}
