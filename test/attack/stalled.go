package attack

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Limits of requests that wait for a blocked backend.
const (
	inFlight       = 64              // Limits.InFlight
	requests       = 1024            // Limits.Requests
	maxRefusalTime = 4 * time.Second // half of Limits.BackendTimeout, with room for a busy machine
	stallOver      = stallTime + 2*time.Second
)

// stalled returns queries for which the backend blocks and ignores the context.
func stalled() []attack {
	ofOne := query(fmt.Sprintf(`{blockchain{account(address:"%d:%s"){info{balance}}}}`, stalledWorkchain, strings.Repeat("1", 64)))
	ofTwo := query(fmt.Sprintf(`{blockchain{a:account(address:"%d:%s"){info{balance}}b:account(address:"%[1]d:%s"){info{balance}}}}`,
		stalledWorkchain, strings.Repeat("1", 64), strings.Repeat("2", 64)))
	all := []attack{
		{name: "200 clients ask for a balance", want: "refused", within: stallOver, do: func(s *target) (outcome, error) {
			return s.whileHealthy(func() (outcome, error) { return s.overload(200, ofOne) })
		}},
		{name: "1280 queries on 40 sockets", want: "refused", within: stallOver, do: func(s *target) (outcome, error) {
			return s.overloadSockets(40, 32, ofOne)
		}},
		{name: "200 clients ask for two balances and leave, and more come", want: "503 SERVICE_UNAVAILABLE", within: stallOver, do: func(s *target) (outcome, error) {
			if o, err := s.inParallel(200, func(s *target) (outcome, error) { return s.postThen(ofTwo, leaveSoon) }); err != nil || o.class != "no answer" {
				return o, err
			}
			return s.whileHealthy(func() (outcome, error) { // the earlier backend calls are still running
				return s.inParallel(100, func(s *target) (outcome, error) {
					s.timeout = maxRefusalTime
					return s.post(ofOne)
				})
			})
		}},
	}
	for _, protocol := range []string{legacy, modern} {
		all = append(all, withConnections("8 sockets with queries without end ("+protocol+")", 8, func(s *target) (net.Conn, error) {
			return s.floodOperations(protocol, begin(protocol, `"1"`, ofOne))
		}))
	}
	return all
}

// leaveSoon makes the client abandon its request after half a second.
func leaveSoon(c net.Conn) { _ = c.SetReadDeadline(time.Now().Add(usual / 2)) }

// overload sends n requests for which the backend blocks. Exactly InFlight calls may run; all other
// requests must be refused in time.
func (s *target) overload(n int, body string) (outcome, error) {
	var away atomic.Int64
	_, err := s.inParallel(n, func(s *target) (outcome, error) {
		begun := time.Now()
		o, err := s.post(body)
		if err == nil && o.meets("503 SERVICE_UNAVAILABLE") {
			away.Add(1)
			if took := time.Since(begun); took > maxRefusalTime {
				err = fmt.Errorf("%w: refused after %v", errLate, took)
			}
		}
		return o, err
	})
	if err != nil {
		return outcome{}, err
	}
	return s.checkRefused(int(away.Load()), n)
}

func (s *target) checkRefused(away, n int) (outcome, error) {
	held, err := s.server.state()
	if err == nil && (away != n-inFlight || held.Stalled != inFlight) {
		err = fmt.Errorf("%d of %d were refused, %d calls were in flight", away, n, held.Stalled)
	}
	return outcome{"refused", fmt.Sprintf("%d of %d", away, n)}, err
}

// overloadSockets is overload on sockets. Requests above Limits.Requests must be refused
// immediately.
func (s *target) overloadSockets(sockets, each int, payload string) (outcome, error) {
	var mu sync.Mutex
	var away, atOnce int
	_, err := s.inParallel(sockets, func(s *target) (outcome, error) {
		w, err := s.open(modern, true)
		if err != nil {
			return outcome{}, err
		}
		defer w.Close()
		begun := time.Now()
		if err := w.writeText(starts(modern, each, payload)...); err != nil {
			return outcome{}, err
		}
		var late error
		answers := 0
		o, err := w.readUntil(func(m serverMessage) bool {
			if m.Type != "next" && m.Type != "error" {
				return false
			}
			answers++
			if strings.Contains(string(m.Payload), `"SERVICE_UNAVAILABLE"`) {
				mu.Lock()
				defer mu.Unlock()
				away++
				if strings.Contains(string(m.Payload), "Too many requests at once.") {
					atOnce++
				}
				if took := time.Since(begun); took > maxRefusalTime {
					late = fmt.Errorf("%w: refused after %v", errLate, took)
				}
			}
			return answers == each
		})
		if err == nil {
			err = late
		}
		return o, err
	})
	if err == nil && atOnce < sockets*each-requests {
		err = fmt.Errorf("%d of %d requests were refused at once, want at least %d", atOnce, sockets*each, sockets*each-requests)
	}
	if err != nil {
		return outcome{}, err
	}
	return s.checkRefused(away, sockets*each)
}

// meanwhile sends honest queries until do returns.
func (s *target) whileHealthy(do func() (outcome, error)) (outcome, error) {
	done, honest := make(chan struct{}), make(chan error)
	go func() {
		for {
			err := s.healthy()
			select {
			case <-done:
				honest <- err
				return
			case <-time.After(100 * time.Millisecond):
			}
			if err != nil {
				<-done
				honest <- err
				return
			}
		}
	}()
	o, err := do()
	close(done)
	if unhealthy := <-honest; unhealthy != nil && err == nil {
		err = fmt.Errorf("meanwhile: %w", unhealthy)
	}
	return o, err
}
