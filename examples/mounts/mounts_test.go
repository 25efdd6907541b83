package mounts_test

import (
	"context"
	"io"
	"log"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5/middleware"

	"github.com/chaingql/chaingql/examples/mounts"
)

func TestMain(m *testing.M) {
	silent := &middleware.DefaultLogFormatter{Logger: log.New(io.Discard, "", 0)}
	middleware.DefaultLogger = middleware.RequestLogger(silent)
	gin.SetMode(gin.TestMode)
	os.Exit(m.Run())
}

func TestAllTransportsWorkWithEachRouter(t *testing.T) {
	for name, mount := range map[string]func(http.Handler) http.Handler{"net/http": mounts.NetHTTP, "chi": mounts.Chi,
		"gin": mounts.Gin, "echo": mounts.Echo} {
		t.Run(name, func(t *testing.T) {
			s := newSiteBehind(t, mount, 0)
			to := s.URL + "/demo/graphql"
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			query(t, to)
			query(t, to+"/")
			if status, body := send(t, "QUERY", to, `{"query":"{__typename}"}`, "Content-Type",
				"application/json"); status != 200 {
				t.Errorf("a QUERY received status %d and %s, want 200", status, body)
			}
			if status, body := send(t, "GET", s.URL+"/none/graphql?query={__typename}", ""); status != 401 {
				t.Errorf("an unknown project received status %d and %s, want 401", status, body)
			}
			for _, path := range []string{"/graphql", "/graphql/"} { // the SDK uses these paths if it has no project
				if status, body := send(t, "GET", s.URL+path+"?query={__typename}", ""); status != 401 {
					t.Errorf("GET %s without a project received status %d and %s, want the Authorizer's 401",
						path, status, body)
				}
			}
			const want = `{"data":{"blocks":{"seq_no":1}}}`
			for way, listen := range map[string]func(context.Context, *testing.T, string,
				string) func() string{"stream": listenToStream, "socket": listenOnSocket} {
				if got := listen(ctx, t, to, `subscription{blocks(after:""){seq_no}}`)(); !strings.Contains(got, want) {
					t.Errorf("the %s received %s, want %s", way, got, want)
				}
			}
		})
	}
}
