package main

import (
	"errors"
	"sync"
	"syscall"
	"time"
)

// comers are short-lived clients that connect, subscribe, unsubscribe and leave at a fixed rate.
type comers struct {
	quit chan struct{}
	wg   sync.WaitGroup

	mu     sync.Mutex
	came   int
	failed error // first error
}

// stay is the time between a client's subscribe and unsubscribe messages.
const stay = 50 * time.Millisecond

func startComers(addr string, d dialect, rate int) *comers {
	c := &comers{quit: make(chan struct{})}
	c.wg.Go(func() {
		tick := time.NewTicker(time.Second / time.Duration(rate))
		defer tick.Stop()
		for {
			select {
			case <-c.quit:
				return
			case <-tick.C:
				c.wg.Go(func() { c.come(addr, d) })
			}
		}
	})
	return c
}

func (c *comers) come(addr string, d dialect) {
	s := sameStream(0)
	fd, _, err := openSocket(addr, d, s)
	if err == nil {
		time.Sleep(stay)
		err = errors.Join(send(fd, message(d.stop, stream{id: s.id})), syscall.Close(fd))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.came++
	if c.failed == nil {
		c.failed = err
	}
}

// stop waits for all clients and returns their number.
func (c *comers) stop() (int, error) {
	if c == nil {
		return 0, errors.New("no short-lived clients are running")
	}
	close(c.quit)
	c.wg.Wait()
	return c.came, c.failed
}
