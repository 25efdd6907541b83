package chaingql_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/internal/testkit"
	"github.com/chaingql/chaingql/memchain"
)

// behindProxy replaces the address of the proxy with that of the client. The proxy must set the header itself in
// every request; otherwise clients can choose their address.
func behindProxy(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if addr, err := netip.ParseAddr(r.Header.Get("X-Forwarded-For")); err == nil {
			r.RemoteAddr = addr.String()
		}
		next.ServeHTTP(w, r)
	})
}

// withDebug serves the API and, under /debug/, the handler debug. The mux that routes /debug/ has no wildcard, so its
// patterns do not conflict.
func withDebug(api, debug http.Handler) http.Handler {
	inner := http.NewServeMux()
	chaingql.Mount(inner, "/{project}/graphql", api)
	mux := http.NewServeMux()
	mux.Handle("/debug/", debug)
	mux.Handle("/", inner)
	return mux
}

// docs/operations.md shows behindProxy.
func TestProxyHeaderReplacesTheLoggedAddress(t *testing.T) {
	for header, want := range map[string]string{
		"192.0.2.7": "remote=192.0.2.7", "2001:db8::7": "remote=2001:db8::7", "": "remote=10.0.0.1:4711",
		"192.0.2.7, 10.0.0.9": "remote=10.0.0.1:4711",
	} {
		log := &testkit.Buffer{}
		logger := slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		h, _ := newHandler(t, memchain.New(), chaingql.Options{
			Authorizer: chaingql.StaticProjects{}, Logger: logger,
		})
		r := httptest.NewRequest("GET", "/demo/graphql?query={__typename}", nil)
		r.RemoteAddr = "10.0.0.1:4711"
		r.Header.Set("X-Forwarded-For", header)
		behindProxy(h).ServeHTTP(httptest.NewRecorder(), r)
		if !strings.Contains(log.String(), want) {
			t.Errorf("with the header %q, the log lacks %s: %s", header, want, log)
		}
	}
}
