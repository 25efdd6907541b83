package attack

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Bounds of what waits for a backend that hangs.
const (
	inFlight  = 64              // Limits.InFlight
	requests  = 1024            // Limits.Requests
	turnAway  = 4 * time.Second // half of Limits.BackendTimeout, and some for a busy machine
	stallOver = stallTime + 2*time.Second
)

// stalled are queries that a backend hangs over, whatever their context says.
func stalled() []attack {
	ofOne := query(fmt.Sprintf(`{blockchain{account(address:"%d:%s"){info{balance}}}}`, stalledChain, strings.Repeat("1", 64)))
	ofTwo := query(fmt.Sprintf(`{blockchain{a:account(address:"%d:%s"){info{balance}}b:account(address:"%[1]d:%s"){info{balance}}}}`,
		stalledChain, strings.Repeat("1", 64), strings.Repeat("2", 64)))
	all := []attack{
		{name: "200 clients ask for a balance", want: "refused", within: stallOver, do: func(s *site) (outcome, error) {
			return s.meanwhile(func() (outcome, error) { return s.besiege(200, ofOne) })
		}},
		{name: "1280 queries on 40 sockets", want: "refused", within: stallOver, do: func(s *site) (outcome, error) {
			return s.besiegeBySockets(40, 32, ofOne)
		}},
		{name: "200 clients ask for two balances and leave, and more come", want: "503 SERVICE_UNAVAILABLE", within: stallOver, do: func(s *site) (outcome, error) {
			if o, err := s.crowd(200, func(s *site) (outcome, error) { return s.ask(ofTwo, leaveSoon) }); err != nil || o.class != "no answer" {
				return o, err
			}
			return s.meanwhile(func() (outcome, error) { // what they asked for is still under way
				return s.crowd(100, func(s *site) (outcome, error) {
					s.patience = turnAway
					return s.post(ofOne)
				})
			})
		}},
	}
	for _, protocol := range []string{legacy, modern} {
		all = append(all, crowded("8 sockets with queries without end ("+protocol+")", 8, func(s *site) (net.Conn, error) {
			return s.insist(protocol, begin(protocol, `"1"`, ofOne))
		}))
	}
	return all
}

// leaveSoon has a client that asked leave again: only an answer is waited for so
// shortly.
func leaveSoon(c net.Conn) { _ = c.SetReadDeadline(time.Now().Add(usual / 2)) }

// besiege has so many clients ask for what the backend hangs over. No more than
// may be are under way, all others are turned away in time.
func (s *site) besiege(n int, body string) (outcome, error) {
	var away atomic.Int64
	_, err := s.crowd(n, func(s *site) (outcome, error) {
		begun := time.Now()
		o, err := s.post(body)
		if err == nil && o.meets("503 SERVICE_UNAVAILABLE") {
			away.Add(1)
			if took := time.Since(begun); took > turnAway {
				err = fmt.Errorf("%w: turned away after %v", errLate, took)
			}
		}
		return o, err
	})
	if err != nil {
		return outcome{}, err
	}
	return s.turnedAway(int(away.Load()), n)
}

func (s *site) turnedAway(away, n int) (outcome, error) {
	held, err := s.server.state()
	if err == nil && (away != n-inFlight || held.Stalled != inFlight) {
		err = fmt.Errorf("%d of %d were turned away, %d calls were under way", away, n, held.Stalled)
	}
	return outcome{"refused", fmt.Sprintf("%d of %d", away, n)}, err
}

// besiegeBySockets does so on sockets. What is more than may be answered at once
// is refused at once.
func (s *site) besiegeBySockets(sockets, each int, payload string) (outcome, error) {
	var mu sync.Mutex
	var away, atOnce int
	_, err := s.crowd(sockets, func(s *site) (outcome, error) {
		w, err := s.open(modern, true)
		if err != nil {
			return outcome{}, err
		}
		defer w.Close()
		begun := time.Now()
		if err := w.say(starts(modern, each, payload)...); err != nil {
			return outcome{}, err
		}
		var late error
		answers := 0
		o, err := w.hear(func(m told) bool {
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
				if took := time.Since(begun); took > turnAway {
					late = fmt.Errorf("%w: turned away after %v", errLate, took)
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
		err = fmt.Errorf("%d of %d were refused at once", atOnce, sockets*each)
	}
	if err != nil {
		return outcome{}, err
	}
	return s.turnedAway(away, sockets*each)
}

// meanwhile asks honest questions for as long as something takes.
func (s *site) meanwhile(do func() (outcome, error)) (outcome, error) {
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
	if unwell := <-honest; unwell != nil && err == nil {
		err = fmt.Errorf("meanwhile: %w", unwell)
	}
	return o, err
}
