package attack

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// These are the sizes of incomplete messages, and the memory that the documentation permits for them.
const (
	messageBytes = 64 << 10 // Limits.MessageBytes
	partialBytes = 60_000   // part of a message that a client sends

	pendingResponses = 64 << 20 // Limits.PendingResponseBytes
	socketCost       = 40 << 10 // memory per connection in docs/limits.md
)

// incompleteMessages returns attacks by sockets that send most of a long message and never the rest.
func incompleteMessages(full bool) []attack {
	numbers := []int{3000}
	if full {
		numbers = append(numbers, 9000)
	}
	blank := strings.Repeat(" ", partialBytes)
	fragments := string(frame(opText, blank[:partialBytes/8])) +
		strings.Repeat(string(frame(opContinue, blank[:partialBytes/8])), 7)
	var all []attack
	for _, n := range numbers {
		for _, protocol := range []string{legacy, modern} {
			start := string(upgrade(path, protocol))
			begun := start + string(textFrame(`{"type":"connection_init"}`))
			for _, k := range []struct{ name, text string }{
				{"a frame", begun + string(header(final|opText, messageBytes-1)) + blank},
				{"a frame before connection_init", start + string(header(final|opText, messageBytes-1)) + blank},
				{"fragments", begun + fragments},
				{"a frame, after a query", begun + frameAll(starts(protocol, 1, query("{info{version}}"))) +
					string(header(final|opText, messageBytes-1)) + blank},
			} {
				if !full && (protocol == legacy) != (k.name == "fragments") {
					continue
				}
				all = append(all, incompleteMessage(fmt.Sprintf("%d sockets with most of %s (%s)", n, k.name, protocol),
					n, []byte(k.text)))
			}
		}
	}
	return all
}

// incompleteMessage returns an attack that sends text on each of n sockets. The server must not use
// more memory for the sockets than documented.
func incompleteMessage(name string, n int, text []byte) attack {
	limit := int64(pendingResponses + n*socketCost)
	return attack{name: name, want: "held for", within: 30 * usual, do: func(s *target) (outcome, error) {
		before, err := s.server.state()
		if err != nil {
			return outcome{}, err
		}
		o := outcome{class: "held"}
		err = s.hold(n, text, reset, func() error {
			for begun := time.Now(); ; time.Sleep(100 * time.Millisecond) {
				now, err := s.server.state()
				kept, over := now.RSS-before.RSS, time.Since(begun)
				o.text = fmt.Sprintf("for %d bytes of memory", kept)
				err = errors.Join(err, s.longMessage(), s.healthy())
				switch {
				case err != nil || kept <= limit && over > 3*usual/2:
					return err
				case over > 4*usual: // later, the server closes the sockets because of the frame timeout
					return fmt.Errorf("%d sockets use %d bytes of memory, limit %d", n, kept, limit)
				}
			}
		})
		return o, err
	}}
}

// longMessage sends a long message as an honest client. It returns an error unless the query in the
// message is answered.
func (s *target) longMessage() error {
	w, err := s.open(modern, true)
	if err != nil {
		return fmt.Errorf("%w on a socket: %w", errUnhealthy, err)
	}
	defer w.Close()
	w.send(textFrame(strings.Replace(w.honestQuery(), "{info", strings.Repeat(" ", 20_000)+"{info", 1)))
	o, err := w.readUntil(w.isHonestReply)
	if err != nil || o.class != "served" || o.text != "" {
		return fmt.Errorf("%w on a socket: outcome %v, %w", errUnhealthy, o, err)
	}
	return nil
}
