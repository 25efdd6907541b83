package main

import (
	"bytes"
	"compress/flate"
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"
)

// wireHeaders is the size of the headers of a TCP segment with timestamps over IPv4.
const wireHeaders = 20 + 20 + 12

// selections are subscriptions with compressed messages.
var selections = []struct{ name, text string }{
	{"id and number", `subscription { blocks { id seq_no } }`},
	{"six fields", streamText},
	{"all fields", `subscription { blocks { __typename ` + blockFields + ` cursor } }`},
}

// compression measures how many bytes permessage-deflate (RFC 7692) would save, and its CPU time. With
// server_no_context_takeover, each message is compressed on its own, so that all readers of the same subscription could
// share the result. If their operation ids differ, they can share only the payload: the id is then in a block of its
// own that is not compressed.
func compression(ctx context.Context, size sizes, r *report) error {
	s, err := launch(ctx, own)
	if err != nil {
		return err
	}
	defer s.stop()
	t := r.table("permessage-deflate: bytes per frame and CPU per compression (µs)",
		"fields", "level", "uncompressed", "equal ids", "saved", "saved of all bytes on the wire", "different ids",
		"saved", "with context takeover", "CPU",
		"event of a stream", "compressed", "saved")
	best := 0.0
	for _, sel := range selections {
		messages, err := received(s, sel.text, max(10, size.rounds))
		if err != nil {
			return fmt.Errorf("%s: %w", sel.name, err)
		}
		for _, level := range []int{flate.HuffmanOnly, flate.BestSpeed, flate.DefaultCompression,
			flate.BestCompression} {
			c, err := compressed(messages, level, size)
			if err != nil {
				return err
			}
			saved := func(compressed, headers float64) float64 { return 1 - (compressed+headers)/(c.plain+headers) }
			percent := func(v float64) string { return fmt.Sprintf("%.0f %%", 100*v) }
			if sel.text == streamText {
				best = max(best, saved(c.whole, 0))
			}
			t.add(sel.name, fmt.Sprint(level), figure(c.plain), figure(c.whole), percent(saved(c.whole, 0)),
				percent(saved(c.whole, wireHeaders)),
				figure(c.shared), percent(saved(c.shared, 0)), figure(c.takeover), figure(c.cpu),
				figure(c.event), figure(c.eventShared), percent(1-c.eventShared/c.event))
		}
	}
	t.note("\"All bytes on the wire\" include the headers of TCP and IPv4. Context takeover cannot be shared: " +
		"it needs a compressor for each connection.")
	r.atMost("share of the bytes of a message with six fields that compressing it once for all readers would save",
		best, 0.3)
	return nil
}

// received subscribes, appends n blocks and returns the messages that arrive.
func received(s *server, text string, n int) (messages [][]byte, err error) {
	fd, got, err := openSocket(s.addr, dialectOf(own), stream{"1", string(post(text, nil))})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, syscall.Close(fd)) }()
	time.Sleep(200 * time.Millisecond) // until the subscription has started
	if _, err := s.do(fmt.Sprintf("append %d", n)); err != nil {
		return nil, err
	}
	for len(messages) < n {
		f, rest, whole := cutFrame(got)
		switch {
		case !whole:
			if got, err = more(fd, got); err != nil {
				return nil, err
			}
			continue
		case f.opcode == textFrame:
			messages = append(messages, f.payload)
		}
		got = rest
	}
	return messages, nil
}

// A compressedSize holds the mean size of messages, in bytes with the frame header, and the CPU time of one compression
// in microseconds. An event has the same payload as the message.
type compressedSize struct{ plain, whole, shared, takeover, cpu, event, eventShared float64 }

func compressed(messages [][]byte, level int, size sizes) (c compressedSize, err error) {
	var out bytes.Buffer
	w, err := flate.NewWriter(&out, level)
	if err != nil {
		return c, err
	}
	// The flush ends with four bytes that are not sent (RFC 7692, section 7.2.1).
	deflate := func(message []byte, reset bool) int {
		out.Reset()
		if reset {
			w.Reset(&out)
		}
		_, _ = w.Write(message) // a write to a bytes.Buffer does not fail
		_ = w.Flush()
		return out.Len() - 4
	}
	n := float64(len(messages))
	for _, m := range messages {
		envelope := bytes.Index(m, []byte(`"payload":`)) + len(`"payload":`)
		const storedBlock = 5 // header of a block that is not compressed
		c.plain += framed(len(m)) / n
		c.whole += framed(deflate(m, true)) / n
		c.shared += framed(storedBlock+envelope+deflate(m[envelope:], true)) / n
		event := fmt.Appendf(nil, "event: next\nid: %s\ndata: %s\n\n", distant, m[envelope:len(m)-1])
		c.event += float64(len(event)) / n
		c.eventShared += float64(deflate(event, true)) / n
	}
	w.Reset(&out)
	for _, m := range messages {
		c.takeover += framed(deflate(m, false)) / n
	}
	calls := callsIn(size.slice, func(i int) { deflate(messages[i%len(messages)], true) })
	c.cpu = cpuPerCall(calls, func(i int) { deflate(messages[i%len(messages)], true) })
	return c, nil
}

// framed returns the size of a frame from the server with n bytes of payload.
func framed(n int) float64 {
	if n < 126 {
		return float64(2 + n)
	}
	return float64(4 + n)
}
