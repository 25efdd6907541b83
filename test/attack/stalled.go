package attack

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// These limits apply to requests while the backend blocks.
const (
	inFlight       = 64              // Limits.InFlight
	waiting        = 704             // eleven sixteenths of Limits.Requests, which may wait for the backend
	atOnce         = time.Second     // less than a quarter of Limits.BackendTimeout, which a query may wait
	maxRefusalTime = 5 * time.Second // more than three quarters, because the machine may be busy
	stallOver      = stallTime + 2*time.Second
)

// stalled returns attacks whose queries make the backend block and ignore its context.
func stalled() []attack {
	ofOne := query(fmt.Sprintf(`{blockchain{account(address:"%d:%s"){info{balance}}}}`, stalledWorkchain,
		strings.Repeat("1", 64)))
	ofTwo := query(fmt.Sprintf(`{blockchain{a:account(address:"%d:%s"){info{balance}}`+
		`b:account(address:"%[1]d:%s"){info{balance}}}}`,
		stalledWorkchain, strings.Repeat("1", 64), strings.Repeat("2", 64)))
	all := []attack{
		{name: "200 clients ask for a balance", want: "refused", within: stallOver,
			do: func(s *target) (outcome, error) {
				return s.whileHealthy(func() (outcome, error) { return s.overload(200, ofOne) })
			}},
		{name: "1280 queries on 40 sockets", want: "refused", within: stallOver, do: func(s *target) (outcome, error) {
			honest := *s
			honest.recent = true // queries that need no backend call
			return honest.whileHealthy(func() (outcome, error) { return s.overloadSockets(40, 32, ofOne) })
		}},
		{name: "200 clients ask for two balances and leave, and 100 more arrive", want: "503 SERVICE_UNAVAILABLE",
			within: stallOver, do: func(s *target) (outcome, error) {
				if o, err := s.inParallel(200, func(s *target) (outcome, error) {
					return s.postThen(ofTwo, leaveSoon)
				}); err != nil || o.class != "no answer" {
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
		all = append(all, withConnections("8 sockets with endless queries ("+protocol+")", 8,
			func(s *target) (net.Conn, error) {
				return s.floodOperations(protocol, begin(protocol, `"1"`, ofOne))
			}))
	}
	return all
}

// leaveSoon makes the client abandon its request after half a second.
func leaveSoon(c net.Conn) { _ = c.SetReadDeadline(time.Now().Add(usual / 2)) }

// lateRefusal returns the error for a request that was refused after more than maxRefusalTime.
func lateRefusal(took time.Duration) error {
	return fmt.Errorf("%w: request was refused after %v, want at most %v", errLate, took, maxRefusalTime)
}

// overload sends n requests for which the backend blocks. Exactly Limits.InFlight backend calls may
// run. All other requests must be refused within maxRefusalTime.
func (s *target) overload(n int, body string) (outcome, error) {
	var rejected atomic.Int64
	_, err := s.inParallel(n, func(s *target) (outcome, error) {
		begun := time.Now()
		o, err := s.post(body)
		if err == nil && o.meets("503 SERVICE_UNAVAILABLE") {
			rejected.Add(1)
			if took := time.Since(begun); took > maxRefusalTime {
				err = lateRefusal(took)
			}
		}
		return o, err
	})
	if err != nil {
		return outcome{}, err
	}
	return s.checkRefused(int(rejected.Load()), n)
}

// checkRefused checks that all requests but Limits.InFlight were refused.
func (s *target) checkRefused(rejected, n int) (outcome, error) {
	held, err := s.server.state()
	if err == nil && (rejected != n-inFlight || held.Stalled != inFlight) {
		err = fmt.Errorf("%d of %d requests were refused and %d backend calls were in flight, want %d and %d",
			rejected, n, held.Stalled, n-inFlight, inFlight)
	}
	return outcome{"refused", fmt.Sprintf("%d of %d", rejected, n)}, err
}

// overloadSockets is like overload, but sends the requests on sockets. Those that may not wait must be refused at once.
func (s *target) overloadSockets(sockets, each int, payload string) (outcome, error) {
	var mu sync.Mutex
	var rejected, early int
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
				rejected++
				switch took := time.Since(begun); {
				case took < atOnce:
					early++
				case took > maxRefusalTime:
					late = lateRefusal(took)
				}
			}
			return answers == each
		})
		if err == nil {
			err = late
		}
		return o, err
	})
	if err == nil && early < sockets*each-waiting {
		err = fmt.Errorf("%d of %d requests were refused at once, want at least %d",
			early, sockets*each, sockets*each-waiting)
	}
	if err != nil {
		return outcome{}, err
	}
	return s.checkRefused(rejected, sockets*each)
}

// whileHealthy calls do and sends honest queries until do returns. It returns an error if an honest
// query fails.
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
		err = fmt.Errorf("during the attack: %w", unhealthy)
	}
	return o, err
}
