package attack

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
)

// resumed are subscriptions that match nothing, on two sockets, as many as there
// are processors for writers: each has all blocks since an old cursor to look at,
// and nothing to send.
func resumed(full bool) []attack {
	lasting := 2 * time.Second
	if full {
		lasting = 8 * time.Second
	}
	// 8 lists are as much as Limits.VariableBytes lets a filter have.
	list := `id:{in:[` + strings.Repeat(`"a",`, 99) + `"own"]}`
	filter := "{" + strings.Repeat(list+" OR:{", 7) + list + strings.Repeat("}", 8)
	var all []attack
	for _, protocol := range []string{legacy, modern} {
		for _, k := range []struct {
			name  string
			after func(i int) string
		}{
			{"the beginning", func(int) string { return "" }},
			{"cursors of their own", func(i int) string { return string(roundBefore(uint32(999 - i))) }},
			{"the beginning of the window", func(int) string { return string(roundBefore(300)) }},
		} {
			if !full && (protocol == modern) != (k.name == "the beginning") {
				continue
			}
			all = append(all, crowdedFor(lasting, "2 sockets with 256 subscriptions resumed from "+k.name+" ("+protocol+")", 2, func(s *site) (net.Conn, error) {
				return s.resume(protocol, 256, full, func(i int) string {
					own := strings.ReplaceAll(filter, "own", fmt.Sprint(i))
					return query(`subscription{blocks(after:"` + k.after(i) + `" filter:` + own + `){id}}`)
				})
			}, (*site).receives))
		}
	}
	return all
}

// resume opens a socket with n subscriptions. If again, it ends and starts them
// again for as long as it is open, at a rate that it may have.
func (s *site) resume(protocol string, n int, again bool, payload func(i int) string) (net.Conn, error) {
	w, err := s.open(protocol, true)
	if err != nil {
		return nil, err
	}
	w.wait(time.Hour)
	go func() { _, _ = w.hear(func(told) bool { return false }) }()
	texts := make([]string, n)
	for i := range texts {
		texts[i] = begin(protocol, fmt.Sprintf(`"%d"`, i), payload(i))
	}
	stop := map[string]string{legacy: "stop", modern: "complete"}[protocol]
	go func() {
		if err := w.say(texts...); err != nil || !again {
			return
		}
		for range time.Tick(time.Second) { // of 200 messages
			for i := range min(n, 90) {
				if err := w.say(fmt.Sprintf(`{"id":"%d","type":"%s"}`, i, stop), texts[i]); err != nil {
					return
				}
			}
		}
	}()
	return w.Conn, nil
}

// receives is an honest client that subscribes, and has blocks in time.
func (s *site) receives() error {
	w, err := s.open(modern, true)
	if err != nil {
		return fmt.Errorf("%w on a socket: %w", errUnwell, err)
	}
	defer w.Close()
	w.wait(time.Second)
	w.send(textFrame(begin(modern, honestID, query(liveQuery))))
	for range 3 {
		text, err := w.next()
		if err == nil && !strings.Contains(text, "chain_order") {
			err = errors.New(short(text))
		}
		if err != nil {
			return fmt.Errorf("%w on a socket: %w", errUnwell, err)
		}
	}
	return nil
}
