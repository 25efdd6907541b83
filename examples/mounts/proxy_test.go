package mounts_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chaingql/chaingql/examples/mounts"
	"github.com/chaingql/chaingql/internal/testkit"
)

// A proxy runs a reverse proxy with its configuration in the folder proxies. Only the addresses and paths in the
// configuration are replaced.
type proxy struct {
	file, program, listens, site string
	start                        func(conf, dir string) []string
}

var proxies = map[string]proxy{
	"nginx":   {"nginx.conf", "nginx", "listen 80;", "listen %s;", nginx},
	"caddy":   {"Caddyfile", "caddy", "api.example.com {", "http://%s {", caddy},
	"haproxy": {"haproxy.cfg", "haproxy", "bind :80", "bind %s", haproxy},
}

// nginx completes a configuration for the http block and returns the arguments for nginx. dir is a temporary folder.
func nginx(conf, dir string) []string {
	var user string
	if os.Getuid() == 0 {
		user = "user root;\n" // otherwise the worker processes cannot read dir
	}
	var temp strings.Builder
	for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		fmt.Fprintf(&temp, "%s_temp_path %s;\n", kind, filepath.Join(dir, kind))
	}
	whole := fmt.Sprintf("%sdaemon off;\npid %s;\nerror_log stderr;\nevents { worker_connections 4096; }\n"+
		"http {\naccess_log off;\n%sinclude %s;\n}\n", user, filepath.Join(dir, "pid"), &temp, conf)
	return []string{"-p", dir, "-e", "stderr", "-c", put(dir, "main.conf", whole)}
}

func caddy(conf, dir string) []string {
	return []string{"run", "--adapter", "caddyfile", "--config",
		put(dir, "whole", "{\nadmin off\n}\nimport "+conf+"\n")}
}

func haproxy(conf, _ string) []string { return []string{"-db", "-f", conf} }

func put(dir, name, text string) string {
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		panic(err)
	}
	return path
}

// run starts the proxy in front of the upstream address and returns the address of the proxy. The proxy stops when the
// test ends. replace contains pairs of an old and a new text for the configuration.
func (p proxy) run(t *testing.T, upstream string, replace ...string) string {
	t.Helper()
	program, err := exec.LookPath(p.program)
	if err != nil {
		testkit.Missing(t, p.program)
	}
	dir, address := t.TempDir(), testkit.FreeAddress(t)
	text, err := os.ReadFile(filepath.Join("proxies", p.file))
	if err != nil {
		t.Fatal(err)
	}
	conf := string(text)
	for old, own := range map[string]string{
		p.listens: fmt.Sprintf(p.site, address), "127.0.0.1:8080": upstream, "/var/cache/nginx": dir,
	} {
		if !strings.Contains(conf, old) && old[0] != '/' {
			t.Fatalf("%s does not contain %q", p.file, old)
		}
		conf = strings.ReplaceAll(conf, old, own)
	}
	conf = strings.NewReplacer(replace...).Replace(conf)
	var said logbook
	cmd := exec.Command(program, p.start(put(dir, p.file, conf), dir)...)
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_DATA_HOME="+dir, "XDG_CONFIG_HOME="+dir)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(5 * time.Second):
			_ = cmd.Process.Kill()
			<-ended
		}
		if t.Failed() {
			t.Logf("output of %s:\n%s", p.program, said.String())
		}
	})
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			_ = conn.Close()
			return address
		}
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("%s did not start: %v", p.program, err)
		default:
		}
		if time.Since(began) > 20*time.Second {
			t.Fatalf("%s accepts no connections after 20 seconds: %v", p.program, err)
		}
	}
}

// A logbook is a buffer for the output of a proxy.
type logbook struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logbook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logbook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func TestProxiesPassQueriesSocketsAndStreams(t *testing.T) {
	for name, p := range proxies {
		t.Run(name, func(t *testing.T) { passes(t, p) })
	}
	for name, p := range two { // here, both instances are one
		t.Run(name+" for two instances", func(t *testing.T) { passes(t, p) })
	}
	t.Run("haproxy over h2c", func(t *testing.T) {
		passes(t, two["haproxy"], "default-server ", "default-server proto h2 ws h1 ")
	})
}

// passes checks that queries, sockets and streams work through a proxy, and that the proxy does not buffer events.
func passes(t *testing.T, p proxy, replace ...string) {
	s := newSite(t)
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) { // Caddy refuses requests if its first probe fails
		if status, body := send(t, "GET", s.URL+"/readyz", ""); status == http.StatusOK {
			break
		} else if time.Since(began) > patience {
			t.Fatalf("the site is not ready after %v: %s", patience, body)
		}
	}
	address := strings.TrimPrefix(s.URL, "http://")
	to := "http://" + p.run(t, address, append(replace, "127.0.0.1:8081", address)...) + "/demo/graphql"
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	query(t, to)
	query(t, to+"/")
	askQuery(t, to)
	if status, body := send(t, "GET", strings.Replace(to, "demo", "shop", 1)+"?query={__typename}", ""); status != 401 {
		t.Errorf("a request without the secret received status %d and %s, want 401", status, body)
	}
	if status, body := send(t, "GET", strings.Replace(to, "demo", "shop", 1)+"?query={__typename}", "", "Authorization",
		"Basic OnMzY3JldA=="); status != 200 {
		t.Errorf("a request with the secret received status %d and %s, want 200", status, body)
	}
	if status, body := send(t, "POST", to, `{"query":"`+strings.Repeat(" ", 129<<10)+`"}`, "Content-Type",
		"application/json"); status != 413 || !strings.Contains(body, "LIMIT_EXCEEDED") {
		t.Errorf("a body of 129 KiB received status %d and %.100s, want the Handler's 413", status, body)
	}
	for _, way := range []func(context.Context, *testing.T, string, string) func() string{listenOnSocket,
		listenToStream} {
		next := way(ctx, t, to, `subscription{blocks(after:"`+string(s.newest())+`"){seq_no}}`)
		for range 5 { // each block must arrive before the next one exists, so that buffering would be noticed
			seqNo := s.commit(t)
			want := fmt.Sprintf(`{"data":{"blocks":{"seq_no":%d}}}`, seqNo)
			if got := next(); !strings.Contains(got, want) {
				t.Fatalf("received %s, want %s", got, want)
			}
		}
	}
}

// askQuery sends different documents by the method QUERY, twice each. Each must receive its own response, with an ETag
// that yields status 304.
func askQuery(t *testing.T, to string) {
	t.Helper()
	for range 2 {
		for _, alias := range []string{"a", "b"} {
			document := `{"query":"{` + alias + `:__typename}"}`
			res, body := exchange(t, "QUERY", to, document, "Content-Type", "application/json")
			if want := `{"data":{"` + alias + `":"Query"}}`; res.StatusCode != 200 || body != want {
				t.Fatalf("a QUERY received status %d and %s, want %s", res.StatusCode, body, want)
			}
			status, _ := send(t, "QUERY", to, document, "Content-Type", "application/json", "If-None-Match",
				res.Header.Get("ETag"))
			if status != 304 {
				t.Errorf("a QUERY with its ETag received status %d, want 304", status)
			}
		}
	}
}

// The Handler's keep-alives must keep idle connections through a proxy open. In this test, the timeout of the proxy is
// four seconds instead of a minute.
func TestProxiesKeepIdleSocketsAndStreamsOpen(t *testing.T) {
	for name, p := range proxies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSiteBehind(t, mounts.NetHTTP, time.Second) // the default is 15 s
			to := "http://" + p.run(t, strings.TrimPrefix(s.URL, "http://"), "60s", "4s") + "/demo/graphql"
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			var listeners []func() string
			for _, way := range []func(context.Context, *testing.T, string, string) func() string{listenOnSocket,
				listenToStream} {
				listeners = append(listeners, way(ctx, t, to,
					`subscription{blocks(after:"`+string(s.newest())+`"){seq_no}}`))
			}
			added := make(chan error, 1)
			// The block is late, because the client must read meanwhile to respond to pings.
			time.AfterFunc(5*time.Second, func() { added <- s.add() })
			for _, next := range listeners {
				got := next()
				for strings.Contains(got, `"ping"`) {
					got = next()
				}
				if !strings.Contains(got, `"seq_no":71}`) {
					t.Errorf("received %s, want block 71", got)
				}
			}
			if err := <-added; err != nil {
				t.Error(err)
			}
		})
	}
}

// If the database is down, no instance is ready. Clients must then receive the responses of the instances and not an
// error page of the proxy.
// A client must not be able to choose its address.
func TestProxiesReplaceTheAddressThatAClientSends(t *testing.T) {
	for _, all := range []map[string]proxy{proxies, two} {
		for name, p := range all {
			t.Run(p.file, func(t *testing.T) {
				seen := make(chan []string, 100)
				host := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/demo/graphql" { // not a probe
						seen <- r.Header.Values("X-Forwarded-For")
					}
				}))
				t.Cleanup(host.Close)
				address := strings.TrimPrefix(host.URL, "http://")
				r, err := http.NewRequestWithContext(t.Context(), "GET",
					"http://"+p.run(t, address, "127.0.0.1:8081", address)+"/demo/graphql", nil)
				if err != nil {
					t.Fatal(err)
				}
				r.Header.Set("X-Forwarded-For", "192.0.2.1")
				response, err := http.DefaultClient.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				response.Body.Close()
				if got := <-seen; len(got) != 1 || got[0] != "127.0.0.1" {
					t.Errorf("%s sent the addresses %q, want only 127.0.0.1", name, got)
				}
			})
		}
	}
}

func TestHAProxyUsesUnreadyInstancesIfNoneIsReady(t *testing.T) {
	s := newSite(t)
	s.unready.Store(true)
	address := strings.TrimPrefix(s.URL, "http://")
	to := "http://" + two["haproxy"].run(t, address, "127.0.0.1:8081", address) + "/demo/graphql"
	for began := time.Now(); s.probes.Load() < 4; time.Sleep(10 * time.Millisecond) { // two of each instance
		if time.Since(began) > patience {
			t.Fatalf("HAProxy sent %d probes within %v, want 4", s.probes.Load(), patience)
		}
	}
	query(t, to)
	query(t, to)
}

// send sends one request and returns the status and body of the response.
func send(t *testing.T, method, to, body string, header ...string) (status int, answer string) {
	t.Helper()
	res, answer := exchange(t, method, to, body, header...)
	return res.StatusCode, answer
}

func exchange(t *testing.T, method, to, body string, header ...string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, to, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	answer, err := io.ReadAll(res.Body)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatal(err)
	}
	return res, string(answer)
}
