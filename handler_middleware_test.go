package chaingql_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/chaingql/chaingql"
)

// These tests use real TCP connections, because they cover the middleware and servers that hosts put in front of a
// Handler.

// gzipped is middleware that compresses responses if the client accepts it.
func gzipped(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") || r.Header.Get("Upgrade") != "" {
			h.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Encoding", "gzip")
		gz := gzip.NewWriter(w)
		defer func() { _ = gz.Close() }()
		h.ServeHTTP(&gzipWriter{w, gz}, r)
	})
}

type gzipWriter struct {
	http.ResponseWriter
	gz *gzip.Writer
}

func (w *gzipWriter) WriteHeader(status int) {
	w.Header().Del("Content-Length")
	w.ResponseWriter.WriteHeader(status)
}
func (w *gzipWriter) Write(p []byte) (int, error) { return w.gz.Write(p) }
func (w *gzipWriter) FlushError() error {
	if err := w.gz.Flush(); err != nil {
		return err
	}
	return http.NewResponseController(w.ResponseWriter).Flush()
}
func (w *gzipWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// logged is like logging middleware: its ResponseWriter has no optional methods except Unwrap.
func logged(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(&logWriter{w}, r) })
}

type logWriter struct{ inner http.ResponseWriter }

func (w *logWriter) Header() http.Header         { return w.inner.Header() }
func (w *logWriter) Write(p []byte) (int, error) { return w.inner.Write(p) }
func (w *logWriter) WriteHeader(status int)      { w.inner.WriteHeader(status) }
func (w *logWriter) Unwrap() http.ResponseWriter { return w.inner }

// projects admits only the project demo, so a request succeeds only if the project's name reaches the Authorizer.
var projects = chaingql.StaticProjects{"demo": {}}

func TestAllTransportsWorkBehindCommonMiddleware(t *testing.T) {
	plain := func(h http.Handler) *httptest.Server { return httptest.NewServer(h) }
	for name, host := range map[string]struct {
		path  string
		serve func(h http.Handler) *httptest.Server
		major int // major version of HTTP
	}{
		"ServeMux with {project}": {"/demo/graphql", func(h http.Handler) *httptest.Server {
			return plain(mounted(h))
		}, 1},
		"a trailing slash": {"/demo/graphql/", func(h http.Handler) *httptest.Server {
			return plain(mounted(h))
		}, 1},
		"ServeMux without {project}": {"/demo/graphql", func(h http.Handler) *httptest.Server {
			return plain(subtree("/demo/graphql", h))
		}, 1},
		"StripPrefix": {"/api/v1/demo/graphql", func(h http.Handler) *httptest.Server {
			return plain(subtree("/api/v1/", http.StripPrefix("/api/v1", h)))
		}, 1},
		"gzip middleware":    {"/demo/graphql", func(h http.Handler) *httptest.Server { return plain(gzipped(h)) }, 1},
		"logging middleware": {"/demo/graphql", func(h http.Handler) *httptest.Server { return plain(logged(h)) }, 1},
		"both": {
			"/demo/graphql", func(h http.Handler) *httptest.Server { return plain(logged(gzipped(h))) }, 1,
		},
		"a reverse proxy":    {"/demo/graphql", proxied, 1},
		"TLS with HTTP/2":    {"/demo/graphql", overTLS, 2},
		"HTTP/2 without TLS": {"/demo/graphql", h2c, 2},
	} {
		t.Run(name, func(t *testing.T) {
			chain := chainOf(t, randomBlocks(9, 5))
			h, _ := newHandler(t, chain, chaingql.Options{Authorizer: projects})
			srv := host.serve(h)
			defer srv.Close()
			url := srv.URL + host.path
			client := srv.Client()
			if name == "HTTP/2 without TLS" {
				protocols := new(http.Protocols)
				protocols.SetUnencryptedHTTP2(true)
				client = &http.Client{Transport: &http.Transport{Protocols: protocols}}
			}
			defer client.CloseIdleConnections()
			askOverHTTP(t, client, url, host.major)
			followStream(t, client, url, host.major)
			if name != "HTTP/2 without TLS" { // sockets need HTTP/1.1
				followSocket(t, srv, url)
			}
		})
	}
}

func subtree(pattern string, h http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle(pattern, h)
	return mux
}

func proxied(h http.Handler) *httptest.Server {
	inner := httptest.NewServer(h)
	target, err := url.Parse(inner.URL)
	if err != nil {
		panic(err)
	}
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	front := httptest.NewServer(proxy)
	front.Config.RegisterOnShutdown(inner.Close)
	return front
}

func overTLS(h http.Handler) *httptest.Server {
	srv := httptest.NewUnstartedServer(h)
	srv.EnableHTTP2 = true
	srv.StartTLS()
	return srv
}

func h2c(h http.Handler) *httptest.Server {
	srv := httptest.NewUnstartedServer(h)
	srv.Config.Protocols = new(http.Protocols)
	srv.Config.Protocols.SetHTTP1(true)
	srv.Config.Protocols.SetUnencryptedHTTP2(true)
	srv.Start()
	return srv
}

func askOverHTTP(t *testing.T, client *http.Client, url string, major int) {
	t.Helper()
	res, err := client.Post(url, "application/json", strings.NewReader(`{"query":"{info{endpoints}}"}`))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	_, endpoint, _ := strings.Cut(url, "://")
	want := `{"data":{"info":{"endpoints":["` + endpoint + `"]}}}`
	if strings.Contains(t.Name(), "proxy") { // the endpoint is the inner host's
		want, body = "graphql", []byte(strings.Trim(string(body[bytes.LastIndexByte(body, '/')+1:]), `"]}`))
	}
	equal(t, "response", string(body), want)
	equal(t, "protocol", res.ProtoMajor, major)
}

func followStream(t *testing.T, client *http.Client, to string, major int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	target := to + "?query=" + url.QueryEscape(`subscription{blocks(after:""){chain_order}}`)
	r, err := http.NewRequestWithContext(ctx, "GET", target, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", "text/event-stream")
	res, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	equal(t, "protocol of the stream", res.ProtoMajor, major)
	sc := bufio.NewScanner(res.Body)
	for _, b := range randomBlocks(9, 5) {
		for _, want := range append([]string{""}, next(b)...) {
			for {
				if !sc.Scan() {
					t.Fatalf("the stream ended before %q: %v", want, sc.Err())
				}
				if sc.Text() != ":" && (sc.Text() != "" || want == "") {
					break
				}
			}
			equal(t, "line", sc.Text(), want)
		}
	}
}

func followSocket(t *testing.T, srv *httptest.Server, url string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	client := srv.Client()
	if tr, ok := client.Transport.(*http.Transport); ok && srv.TLS != nil {
		one := tr.Clone()
		one.ForceAttemptHTTP2, one.TLSNextProto = false, nil
		one.TLSClientConfig.NextProtos = []string{"http/1.1"}
		one.Protocols = new(http.Protocols)
		one.Protocols.SetHTTP1(true)
		client = &http.Client{Transport: one}
		defer one.CloseIdleConnections()
	}
	target := strings.Replace(url, "http", "ws", 1)
	conn, _, err := websocket.Dial(ctx, target, &websocket.DialOptions{
		HTTPClient: client, Subprotocols: []string{"graphql-ws"},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.CloseNow() }()
	text := []byte(start("1", `subscription{blocks(after:""){chain_order}}`))
	if err := conn.Write(ctx, websocket.MessageText, text); err != nil {
		t.Fatal(err)
	}
	for _, b := range randomBlocks(9, 5) {
		_, frame, err := conn.Read(ctx)
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "frame", string(frame), data("1", fmt.Sprintf(`{"blocks":{"chain_order":%q}}`, b.Cursor)))
	}
}

func TestHandshakeThroughMiddlewareWithoutHijackerReceivesStatus500(t *testing.T) {
	h, _ := newHandler(t, referenceChain(t), chaingql.Options{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(struct{ http.ResponseWriter }{w}, r)
	}))
	defer srv.Close()
	conn, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, socketRequest); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "status", res.StatusCode, 500)
}

// Middleware that decompresses bodies may leave the Content-Length of the compressed body.
func TestBodyIsReadToItsEndWhateverItsContentLength(t *testing.T) {
	h, _ := newHandler(t, referenceChain(t), chaingql.Options{})
	for _, length := range []int64{0, 1, 4095, 4096, 1 << 40, -1} {
		body := request802 + strings.Repeat(" ", 10_000)
		longer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.ContentLength = length
			h.ServeHTTP(w, r)
		})
		want := 200
		if length == 1<<40 {
			want = 413
		}
		equal(t, fmt.Sprint("status with Content-Length ", length), post(longer, body).Code, want)
	}
	bodies, responses := h.Pending()
	equal(t, "counted bytes", bodies+responses, 0)
}
