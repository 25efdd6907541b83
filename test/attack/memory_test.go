package attack

import (
	"fmt"
	"net"
	"testing"
	"time"
)

// Clients request gigabytes of responses and do not read them. The server's memory is limited to the
// worst case that docs/limits.md states, so the server exits if it needs more.
func TestUnreadResponsesStayWithinDocumentedMemory(t *testing.T) {
	server := start(t, confined)
	before, err := server.resetPeaks()
	if err != nil {
		t.Fatal(err)
	}
	s := &target{addr: server.addr, timeout: 30 * time.Second, server: server}
	text := expensiveQuery()
	var conns []net.Conn
	defer func() {
		for _, c := range conns {
			reset(c)
		}
	}()
	keep := func(c net.Conn, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
	}
	for i := range 11 {
		posts := streams(95, func(i int) []byte { return h2Post(i, text, len(text)) })
		keep(s.dial2(h2Preface(uint32(i%2)*65535, i%3 == 0), posts))
	}
	for i := range 200 {
		c, err := s.dial()
		keep(c, err)
		protocol := []string{legacy, modern}[i%2]
		sent := string(upgrade(path, protocol)) + string(textFrame(`{"type":"connection_init"}`)) +
			frameAll(starts(protocol, 32, text))
		go func() { _, _ = c.Write([]byte(sent)) }() // until the server stops reading
	}
	for range 20 {
		if o, err := s.post(goodBody); err != nil || server.dead() {
			t.Fatalf("honest query failed: outcome %v, error %v; server output: %s", o, err, server.errorOutput())
		}
		time.Sleep(100 * time.Millisecond) // pause between honest queries
	}
	after, err := server.state()
	if err != nil {
		t.Fatalf("%v; server output: %s", err, server.errorOutput())
	}
	limit, err := worstCase()
	if err != nil || after.Peak > int64(limit) {
		t.Errorf("peak RSS is %d MiB, want at most the documented worst case of %d MiB; error %v", after.Peak>>20,
			limit>>20, err)
	}
	fmt.Printf("worst case %d MiB: RSS %d MiB before, peak %d MiB\n", limit>>20, before.RSS>>20, after.Peak>>20)
}
