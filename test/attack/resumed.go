package attack

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
)

// resumed returns attacks by subscriptions that resume from an old cursor and filter for blocks that do
// not exist. The server thus reads many blocks and sends none. There are two sockets, so that they
// occupy both writers on a machine with two cores.
func resumed(full bool) []attack {
	lasting := 2 * time.Second
	if full {
		lasting = 8 * time.Second
	}
	// Limits.VariableBytes permits at most 8 such lists in a filter.
	list := `id:{in:[` + strings.Repeat(`"a",`, 99) + `"own"]}`
	filter := "{" + strings.Repeat(list+" OR:{", 7) + list + strings.Repeat("}", 8)
	var all []attack
	for _, protocol := range []string{legacy, modern} {
		for _, k := range []struct {
			name  string
			after func(i int) string
		}{
			{"the beginning", func(int) string { return "" }},
			{"different cursors", func(i int) string { return string(roundBefore(uint32(999 - i))) }},
			{"the beginning of the window", func(int) string { return string(roundBefore(300)) }},
		} {
			if !full && (protocol == modern) != (k.name == "the beginning") {
				continue
			}
			all = append(all, withConnectionsFor(lasting,
				"2 sockets with 256 subscriptions resumed from "+k.name+" ("+protocol+")", 2,
				func(s *target) (net.Conn, error) {
					return s.resume(protocol, 256, full, func(i int) string {
						own := strings.ReplaceAll(filter, "own", fmt.Sprint(i))
						return query(`subscription{blocks(after:"` + k.after(i) + `" filter:` + own + `){id}}`)
					})
				}, (*target).receives))
		}
	}
	return all
}

// resume opens a socket with n subscriptions. If again is true, it ends and restarts subscriptions for
// as long as the socket is open, but not more often than the message rate permits.
func (s *target) resume(protocol string, n int, again bool, payload func(i int) string) (net.Conn, error) {
	w, err := s.open(protocol, true)
	if err != nil {
		return nil, err
	}
	w.wait(time.Hour)
	go func() { _, _ = w.readUntil(func(serverMessage) bool { return false }) }()
	texts := make([]string, n)
	for i := range texts {
		texts[i] = begin(protocol, fmt.Sprintf(`"%d"`, i), payload(i))
	}
	stop := map[string]string{legacy: "stop", modern: "complete"}[protocol]
	go func() {
		if err := w.writeText(texts...); err != nil || !again {
			return
		}
		for range time.Tick(time.Second) { // at most 180 messages, within the rate
			for i := range min(n, 90) {
				if err := w.writeText(fmt.Sprintf(`{"id":"%d","type":"%s"}`, i, stop), texts[i]); err != nil {
					return
				}
			}
		}
	}()
	return w.Conn, nil
}

// receives subscribes as an honest client. It returns an error unless three blocks arrive within a
// second.
func (s *target) receives() error { return s.receivesFrom(liveQuery, 3, time.Second) }

// resumes subscribes as an honest client that was away for longer than the window, and for which all
// blocks match. It returns an error unless ten pages of stored blocks arrive within two seconds. Then it
// calls receives.
func (s *target) resumes() error {
	stored := fmt.Sprintf(`subscription{blocks(after:"%s"){chain_order}}`, roundBefore(900))
	return errors.Join(s.receivesFrom(stored, 1000, 2*time.Second), s.receives())
}

// receivesFrom returns an error unless a subscription receives n blocks in time.
func (s *target) receivesFrom(subscription string, n int, within time.Duration) error {
	w, err := s.open(modern, true)
	if err != nil {
		return fmt.Errorf("%w on a socket: %w", errUnhealthy, err)
	}
	defer w.Close()
	w.wait(within)
	w.send(textFrame(begin(modern, honestID, query(subscription))))
	for i := range n {
		text, err := w.next()
		if err == nil && !strings.Contains(text, "chain_order") {
			err = errors.New(short(text))
		}
		if err != nil {
			return fmt.Errorf("%w on a socket after %d of %d blocks: %w", errUnhealthy, i, n, err)
		}
	}
	return nil
}
