package main

import (
	"errors"
	"sync"
	"syscall"
	"time"
)

// shortLived starts short-lived clients at a fixed rate. Each client connects, subscribes, unsubscribes
// and disconnects.
type shortLived struct {
	quit chan struct{}
	wg   sync.WaitGroup

	mu        sync.Mutex
	connected int
	failed    error // the first error of a client
}

// subscribedTime is the time between a client's subscribe and unsubscribe messages.
const subscribedTime = 50 * time.Millisecond

// startShortLived starts rate clients per second until stop is called.
func startShortLived(addr string, d dialect, rate int) *shortLived {
	c := &shortLived{quit: make(chan struct{})}
	c.wg.Go(func() {
		tick := time.NewTicker(time.Second / time.Duration(rate))
		defer tick.Stop()
		for {
			select {
			case <-c.quit:
				return
			case <-tick.C:
				c.wg.Go(func() { c.runOne(addr, d) })
			}
		}
	})
	return c
}

// runOne runs one client.
func (c *shortLived) runOne(addr string, d dialect) {
	s := sameStream(0)
	fd, _, err := openSocket(addr, d, s)
	if err == nil {
		time.Sleep(subscribedTime)
		err = errors.Join(send(fd, message(d.stop, stream{id: s.id})), syscall.Close(fd))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.connected++
	if c.failed == nil {
		c.failed = err
	}
}

// stop starts no more clients, waits until all have disconnected, and returns how many there were.
func (c *shortLived) stop() (int, error) {
	if c == nil {
		return 0, errors.New("no short-lived clients are running")
	}
	close(c.quit)
	c.wg.Wait()
	return c.connected, c.failed
}
