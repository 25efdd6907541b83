package mounts_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
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

// A proxy runs a reverse proxy with its configuration in proxies/. Only addresses and paths of the
// file are replaced.
type proxy struct {
	file, program, listens, site string
	start                        func(conf, dir string) []string
}

var proxies = map[string]proxy{
	"nginx":   {"nginx.conf", "nginx", "listen 80;", "listen %s;", nginx},
	"caddy":   {"Caddyfile", "caddy", "api.example.com {", "http://%s {", caddy},
	"haproxy": {"haproxy.cfg", "haproxy", "bind :80", "bind %s", haproxy},
}

// nginx wraps a configuration for the http block into a complete file.
func nginx(conf, dir string) []string {
	var user string
	if os.Getuid() == 0 {
		user = "user root;\n" // otherwise its workers cannot read dir
	}
	var temp strings.Builder
	for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		fmt.Fprintf(&temp, "%s_temp_path %s;\n", kind, filepath.Join(dir, kind))
	}
	whole := fmt.Sprintf("%sdaemon off;\npid %s;\nerror_log stderr;\nevents {}\nhttp {\naccess_log off;\n%sinclude %s;\n}\n",
		user, filepath.Join(dir, "pid"), &temp, conf)
	return []string{"-p", dir, "-e", "stderr", "-c", put(dir, "main.conf", whole)}
}

func caddy(conf, dir string) []string {
	return []string{"run", "--adapter", "caddyfile", "--config", put(dir, "whole", "{\nadmin off\n}\nimport "+conf+"\n")}
}

func haproxy(conf, _ string) []string { return []string{"-db", "-f", conf} }

func put(dir, name, text string) string {
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		panic(err)
	}
	return path
}

// run starts the proxy for an upstream address and returns the proxy's address. It stops with the
// test. replace holds pairs of old and new text for the configuration.
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
			t.Fatalf("%s accepts no connections: %v", p.program, err)
		}
	}
}

// A logbook records the output of a proxy.
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
}

// passes checks that queries, sockets and streams work through a proxy without buffering.
func passes(t *testing.T, p proxy) {
	s := newSite(t)
	to := "http://" + p.run(t, strings.TrimPrefix(s.URL, "http://")) + "/demo/graphql"
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	query(t, to)
	query(t, to+"/")
	if status, body := send(t, "GET", strings.Replace(to, "demo", "shop", 1)+"?query={__typename}", ""); status != 401 {
		t.Errorf("without the secret: %d %s", status, body)
	}
	if status, body := send(t, "GET", strings.Replace(to, "demo", "shop", 1)+"?query={__typename}", "", "Authorization", "Basic OnMzY3JldA=="); status != 200 {
		t.Errorf("with the secret: %d %s", status, body)
	}
	if status, body := send(t, "POST", to, `{"query":"`+strings.Repeat(" ", 129<<10)+`"}`, "Content-Type", "application/json"); status != 413 || !strings.Contains(body, "LIMIT_EXCEEDED") {
		t.Errorf("body of 129 KiB: %d %.100s, want the Handler's error", status, body)
	}
	for _, way := range []func(context.Context, *testing.T, string, string) func() string{listenOnSocket, listenToStream} {
		next := way(ctx, t, to, `subscription{blocks(after:"`+string(s.newest())+`"){seq_no}}`)
		for range 5 { // each block arrives before the next exists, so nothing buffers
			seqNo := s.commit(t)
			if got, want := next(), fmt.Sprintf(`{"data":{"blocks":{"seq_no":%d}}}`, seqNo); !strings.Contains(got, want) {
				t.Fatalf("got %s, want %s", got, want)
			}
		}
	}
}

// Keep-alives of the Handler keep idle connections open. Here, four seconds stand for the usual
// minute.
func TestProxiesKeepIdleSocketsAndStreams(t *testing.T) {
	for name, p := range proxies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSiteBehind(t, mounts.NetHTTP, time.Second) // instead of 15 s
			to := "http://" + p.run(t, strings.TrimPrefix(s.URL, "http://"), "60s", "4s") + "/demo/graphql"
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			var listeners []func() string
			for _, way := range []func(context.Context, *testing.T, string, string) func() string{listenOnSocket, listenToStream} {
				listeners = append(listeners, way(ctx, t, to, `subscription{blocks(after:"`+string(s.newest())+`"){seq_no}}`))
			}
			added := make(chan error, 1)
			time.AfterFunc(5*time.Second, func() { added <- s.add() }) // the client must keep reading to answer pings
			for _, next := range listeners {
				got := next()
				for strings.Contains(got, `"ping"`) {
					got = next()
				}
				if !strings.Contains(got, `"seq_no":71}`) {
					t.Errorf("got %s, want block 71", got)
				}
			}
			if err := <-added; err != nil {
				t.Error(err)
			}
		})
	}
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
