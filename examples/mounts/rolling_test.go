package mounts_test

import (
	"context"
	"flag"
	"net/http"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"
)

var full = flag.Bool("proxies.full", false, "run each proxy, with 300 subscribers")

const (
	patience = 15 * time.Second // maximum wait for anything that must happen
	darkest  = 3 * time.Second  // maximum time that a client may be without blocks
)

// two contains the configuration of each proxy for two instances.
var two = map[string]proxy{
	"nginx":   {"nginx-two.conf", "nginx", "listen 80;", "listen %s;", nginx},
	"haproxy": {"haproxy-two.cfg", "haproxy", "bind :80", "bind %s", haproxy},
	"caddy":   {"Caddyfile-two", "caddy", "api.example.com {", "http://%s {", caddy},
}

// Subscribers and queries run while two instances of one chain are restarted one after the other, and killed. The log
// shows the figures of proxies/RESULTS.md.
func TestRestartsAndCrashesBehindProxiesLoseNoBlock(t *testing.T) {
	names, subscribers := []string{"nginx"}, 90
	if *full {
		names, subscribers = []string{"nginx", "haproxy", "caddy"}, 300
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, two[name], subscribers)
			rolling := b.during("rolling restart", func() {
				for _, i := range b.instances {
					i.stop()
					i.start()
					pause(t.Context(), checked)
				}
			})
			killed := b.during("kill -9", func() {
				b.instances[0].kill()
				pause(t.Context(), time.Second)
				b.instances[0].start()
				pause(t.Context(), checked)
			})
			frozen := b.during("frozen for 0.5 s, then kill -9", func() {
				b.instances[1].signal(syscall.SIGSTOP)
				pause(t.Context(), 500*time.Millisecond)
				b.instances[1].kill()
				pause(t.Context(), time.Second)
				b.instances[1].start()
				pause(t.Context(), checked)
			})
			log := header
			for _, p := range []*phase{rolling, killed, frozen} {
				log += "\n" + p.row(name)
				p.check(t)
				if name == "caddy" && p != rolling { // Caddy 2.6 does not repeat a POST
					delete(p.failed, "POST: status 502")
				}
				if len(p.failed) > 0 {
					t.Errorf("%s: queries failed: %s", p.name, list(p.failed))
				}
			}
			t.Log("\n" + log)
			if len(rolling.refused) > 0 {
				t.Errorf("reconnects were refused during the rolling restart: %s", list(rolling.refused))
			}
			if rolling.drained < subscribers || rolling.cut > 0 {
				t.Errorf("during the rolling restart, %d connections ended with a reason and %d without; "+
					"want at least %d and 0", rolling.drained, rolling.cut, subscribers)
			}
		})
	}
}

// checked is the time in which a proxy notices that an instance is ready again.
const checked = 2 * time.Second

// A bed consists of two instances behind a proxy, their clients, and a third process that appends blocks.
type bed struct {
	to          string // URL of the service behind the proxy
	instances   [2]*instance
	subscribers []*subscriber
	control     *subscriber // of the third process, which is never stopped
	streams     *http.Client
	queries     *http.Client
	clients     sync.WaitGroup

	mu    sync.Mutex
	phase *phase
}

func newBed(t *testing.T, p proxy, subscribers int) *bed {
	program := filepath.Join(t.TempDir(), "host")
	build := exec.Command("go", "build", "-o", program, "./example")
	build.Dir = filepath.Join("..", "..", "postgres")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the example host of postgres failed: %v\n%s", err, out)
	}
	dsn := startPostgres(t)
	indexer := newInstance(t, program, "-dsn", dsn, "-simulate", "2")
	b := &bed{phase: newPhase("start")}
	for i := range b.instances {
		b.instances[i] = newInstance(t, program, "-dsn", dsn)
	}
	address := p.run(t, b.instances[0].address, "127.0.0.1:8081", b.instances[1].address)
	b.to = "http://" + address + "/demo/graphql"
	b.streams = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	b.queries = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 20}}
	b.control = &subscriber{bed: b, to: "http://" + indexer.address + "/demo/graphql"}
	for i := range subscribers {
		protocol := []string{"graphql-ws", "graphql-transport-ws", ""}[i%3]
		b.subscribers = append(b.subscribers, &subscriber{bed: b, to: b.to, protocol: protocol})
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() {
		cancel()
		b.clients.Wait()
		b.queries.CloseIdleConnections()
	})
	b.clients.Go(func() { b.control.run(ctx) })
	for _, s := range b.subscribers {
		b.clients.Go(func() { s.run(ctx) })
	}
	if behind := b.catchUp(); behind > 0 {
		t.Fatalf("%d subscribers received no block", behind)
	}
	b.clients.Go(func() { b.sendQueries(ctx, 20) })
	return b
}

// during changes the instances, waits until each subscriber has caught up, and returns what the clients have noticed.
func (b *bed) during(name string, change func()) *phase {
	p := newPhase(name)
	b.mu.Lock()
	b.phase = p
	b.mu.Unlock()
	change()
	p.behind = b.catchUp()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.phase = newPhase("")
	return p
}

// catchUp waits until each subscriber has received the newest block. It returns the number of those that have not.
func (b *bed) catchUp() (behind int) {
	var newest int
	for began := time.Now(); time.Since(began) < patience; time.Sleep(20 * time.Millisecond) {
		b.mu.Lock()
		if newest == 0 {
			newest = b.control.last
		}
		behind = 0
		for _, s := range b.subscribers {
			if s.last < max(newest, 1) {
				behind++
			}
		}
		b.mu.Unlock()
		if behind == 0 {
			break
		}
	}
	return behind
}
