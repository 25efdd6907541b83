package mounts_test

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// nginx refuses bodies that exceed its own limit. Clients must receive JSON then, too.
func TestNginxRefusesLargeBodiesWithJSON(t *testing.T) {
	s := newSite(t)
	p := proxy{"nginx-large-bodies.conf", "nginx", "listen 80;", "listen %s;", nginx}
	to := "http://" + p.run(t, strings.TrimPrefix(s.URL, "http://")) + "/demo/graphql"
	query(t, to)
	for size, want := range map[int]string{
		129 << 10: `{"errors":[{"message":"The body exceeds the limit of 131072 bytes.",` +
			`"extensions":{"code":"LIMIT_EXCEEDED"}}]}`,
		2 << 20: `{"errors":[{"message":"The body is too large.","extensions":{"code":"LIMIT_EXCEEDED"}}]}`,
	} {
		body := `{"query":"` + strings.Repeat(" ", size) + `"}`
		if status, got := send(t, "POST", to, body, "Content-Type", "application/json"); status != 413 || got != want {
			t.Errorf("a body of %d bytes received status %d and %.200s, want 413 and %s", size, status, got, want)
		}
	}
}

// Without worker_shutdown_timeout, an old worker would keep its memory and its configuration until its last client has
// left. The test shortens the timeout.
func TestNginxEndsOldWorkersAfterReload(t *testing.T) {
	main, err := os.ReadFile(filepath.Join("proxies", "nginx-main.conf"))
	if err != nil {
		t.Fatal(err)
	}
	short := strings.Replace(string(main), "shutdown_timeout 10m;", "shutdown_timeout 1s;", 1)
	home := ""
	p := proxy{"nginx.conf", "nginx", "listen 80;", "listen %s;", func(conf, dir string) []string {
		home = dir
		args := nginx(conf, dir)
		whole, err := os.ReadFile(filepath.Join(dir, "main.conf"))
		if err != nil {
			t.Fatal(err)
		}
		before, after, found := strings.Cut(string(whole), "events { worker_connections 4096; }\n")
		if !found {
			t.Errorf("the configuration of the other tests has changed: %s", whole)
		}
		put(dir, "main.conf", before+short+after)
		return args
	}}
	s := newSite(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	to := "http://" + p.run(t, strings.TrimPrefix(s.URL, "http://")) + "/demo/graphql"
	r, err := http.NewRequestWithContext(ctx, "POST", to, strings.NewReader(`{"query":"subscription{blocks{seq_no}}"}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "text/event-stream")
	stream, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	pid, err := os.ReadFile(filepath.Join(home, "pid"))
	if err != nil {
		t.Fatal(err)
	}
	master, err := strconv.Atoi(strings.TrimSpace(string(pid)))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(master, syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if _, _ = io.Copy(io.Discard, stream.Body); ctx.Err() != nil {
		t.Error("the stream is still open 20 s after the reload")
	}
	query(t, to) // by a new worker
}
