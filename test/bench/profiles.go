package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strings"
	"time"

	"github.com/chaingql/chaingql/test/bench/source"
)

// profiles writes profiles of chaingql into dir. For each query in process, it writes a CPU profile and
// an allocation profile. It also writes CPU profiles of servers on one CPU: of sending blocks to many subscribers with
// the same query and with different ones, and of balances and the newest block over loopback.
func profiles(ctx context.Context, size sizes, dir string) error {
	s, err := source.New()
	if err != nil {
		return err
	}
	for _, q := range queries {
		c, err := callers(ctx, 1, s, own)
		if err != nil {
			return err
		}
		if err := profiled(dir, q.name, 3*time.Second, func() error {
			c[own][q.name][0].call(q.body)
			return nil
		}); err != nil {
			return err
		}
	}
	for _, subscriptions := range []string{"same", "different"} {
		if err := fanoutProfile(ctx, size, dir, subscriptions); err != nil {
			return err
		}
	}
	if err := loopbackProfile(ctx, size, dir); err != nil {
		return err
	}
	runtime.MemProfileRate = 1 // set after the CPU profiles, because it slows everything down
	for _, q := range queries {
		c, err := callers(ctx, 1, s, own)
		if err != nil {
			return err
		}
		if err := allocationProfile(dir, q.name, func() { c[own][q.name][0].call(q.body) }); err != nil {
			return err
		}
	}
	return nil
}

// allocationProfile calls f many times and writes all allocations of the process so far. To see the
// allocations of f alone, subtract the previous profile (go tool pprof -base).
func allocationProfile(dir, name string, f func()) (err error) {
	for range 100_000 {
		f()
	}
	file, err := create(dir, name+".allocs")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return pprof.Lookup("allocs").WriteTo(file, 0)
}

// create creates the file of a profile.
func create(dir, name string) (*os.File, error) {
	return os.Create(filepath.Join(dir, strings.ReplaceAll(name, " ", "")+".pprof"))
}

// profiled calls f repeatedly for the duration d and writes a CPU profile.
func profiled(dir, name string, d time.Duration, f func() error) (err error) {
	file, err := create(dir, name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if err := pprof.StartCPUProfile(file); err != nil {
		return err
	}
	defer pprof.StopCPUProfile()
	for start := time.Now(); time.Since(start) < d; {
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

// fanoutProfile writes the CPU profile of a server that sends blocks to many subscribers.
func fanoutProfile(ctx context.Context, size sizes, dir, subscriptions string) error {
	a, err := launchSubscribed(ctx, launchOnOneCPU, own, subscriptions)
	if err != nil {
		return err
	}
	defer a.stop()
	if err := a.grow(size.subscribers); err != nil {
		return err
	}
	return a.profiled(ctx, dir, "fanout "+subscriptions, func() error {
		_, err := a.send(1)
		return err
	})
}

// loopbackProfile writes the CPU profiles of a server that answers balances and the newest block over loopback.
func loopbackProfile(ctx context.Context, size sizes, dir string) error {
	s, err := launchOnOneCPU(ctx, own)
	if err != nil {
		return err
	}
	defer s.stop()
	for _, q := range queries[:2] {
		l, err := newAwakeLoad(s.addr, q.body, size.connections)
		if err != nil {
			return err
		}
		err = s.profiled(ctx, dir, "loopback "+q.name, func() error {
			_, _, err := l.run(size.load)
			return err
		})
		l.close()
		if err != nil {
			return err
		}
	}
	return nil
}

// profiled calls f repeatedly while it fetches a CPU profile from the server.
func (s *server) profiled(ctx context.Context, dir, name string, f func() error) error {
	const seconds = 5
	got := make(chan error, 1)
	go func() {
		got <- fetch(ctx, fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", s.addr, seconds), dir, name)
	}()
	for {
		select {
		case err := <-got:
			return err
		default:
		}
		if err := f(); err != nil {
			return errors.Join(err, <-got)
		}
	}
}

// fetch writes the response to a GET into a profile file.
func fetch(ctx context.Context, url, dir, name string) (err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	file, err := create(dir, name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	_, err = io.Copy(file, response.Body)
	return err
}
