package main

import (
	"errors"
	"sync"
	"syscall"
	"time"
)

// Comers connect, start, stop and leave, so many a second.
type comers struct {
	quit chan struct{}
	wg   sync.WaitGroup

	mu     sync.Mutex
	came   int
	failed error // the first
}

// stay is how long one stays before it stops its stream.
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

// stop ends it and returns how many came.
func (c *comers) stop() (int, error) {
	if c == nil {
		return 0, errors.New("nobody comes")
	}
	close(c.quit)
	c.wg.Wait()
	return c.came, c.failed
}
