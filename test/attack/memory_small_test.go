package attack

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"
)

// All connections that a documented size permits are open, four fifths of them by honest clients. The
// others, and clients over HTTP/2, use as much memory as the limits permit, and read nothing. The size is
// the smallest one, unless the flag -attack.size selects another.
func TestDocumentedSizeSurvivesAttacksOnAllConnections(t *testing.T) {
	t.Setenv(sizeEnv, *row)
	size, err := documentedSize()
	if err != nil {
		t.Fatal(err)
	}
	server := start(t, small)
	before, err := server.resetPeaks()
	if err != nil {
		t.Fatal(err)
	}
	s := &target{addr: server.addr, timeout: time.Minute, server: server}
	var conns []net.Conn
	defer func() {
		for _, c := range conns {
			reset(c)
		}
	}()
	keep := func(n int, open func(i int) (net.Conn, error)) {
		t.Helper()
		for i := range n {
			c, err := open(i)
			if err != nil {
				t.Fatalf("connection %d of %d: %v; server output: %s", i, n, err, server.errorOutput())
			}
			conns = append(conns, c)
		}
	}
	send := func(text []byte) (net.Conn, error) {
		c, err := s.dial()
		if err == nil {
			go func() { _, _ = c.Write(text) }() // until the server stops reading
		}
		return c, err
	}
	const quiet = `subscription{blocks(filter:{id:{eq:"none"}}){id}}`
	honest := size.limits.Connections * 4 / 5
	hostile := size.limits.Connections - honest - 1 // and one honest subscriber
	keep(honest, func(int) (net.Conn, error) {
		w, err := s.open(modern, true)
		if err != nil {
			return nil, err
		}
		return w.Conn, w.writeText(begin(modern, `"1"`, query(quiet)))
	})
	keep(honest, func(int) (net.Conn, error) {
		c, err := s.dial()
		if err != nil {
			return nil, err
		}
		if _, err := c.Write(streamRequest("GET", quiet)); err != nil {
			return nil, err
		}
		line, err := bufio.NewReaderSize(c, 64).ReadString('\n')
		if err == nil && !strings.Contains(line, "200") {
			err = fmt.Errorf("the stream received %s", line)
		}
		return c, err
	})
	w := watch(s)

	text := expensiveQuery()
	keep(hostile/2, func(int) (net.Conn, error) { // fill SubscriptionBytes
		w, err := s.open(modern, true)
		if err != nil {
			return nil, err
		}
		w.sendOwn(31, ofVariable(4000))
		return w.Conn, nil
	})
	keep(hostile-hostile/2, func(i int) (net.Conn, error) {
		protocol := []string{legacy, modern}[i%2]
		return send([]byte(string(upgrade(path, protocol)) + string(textFrame(`{"type":"connection_init"}`)) +
			frameAll(starts(protocol, 32, text))))
	})
	keep(hostile, func(i int) (net.Conn, error) { // different ones, whose events are large
		return send(streamRequest("POST", fmt.Sprintf("subscription{blocks{a%d:id %s}}", i, times(45, "b#:hash "))))
	})
	scale := size.limits.Requests / 48 // 1 in the smallest size
	keep(11*scale, func(i int) (net.Conn, error) {
		posts := streams(95, func(i int) []byte { return h2Post(i, text, len(text)) })
		return s.dial2(h2Preface(uint32(i%2)*65535, i%3 == 0), posts)
	})
	body := request("POST", path, strings.Repeat(" ", 100_000))
	keep(300*scale, func(int) (net.Conn, error) { return send(body[:len(body)-1]) })
	for i := range 50 {
		if o, err := s.post(goodBody); err != nil || server.dead() {
			t.Fatalf("honest query %d failed: outcome %v, error %v; server output: %s", i, o, err, server.errorOutput())
		}
		time.Sleep(100 * time.Millisecond) // pause between honest queries
	}
	if _, err := w.end(); err != nil {
		t.Errorf("the honest subscriber: %v", err)
	}
	after, err := server.state()
	if err != nil {
		t.Fatalf("%v; server output: %s", err, server.errorOutput())
	}
	if most := int64(size.memory) * 7 / 8; after.Peak > most { // the rest is for the kernel
		t.Errorf("peak RSS is %d MiB, want at most %d of the documented %d MiB", after.Peak>>20, most>>20,
			size.memory>>20)
	}
	fmt.Printf("size of %d MiB: RSS %d MiB before, peak %d MiB; %d files\n",
		size.memory>>20, before.RSS>>20, after.Peak>>20, after.Files)
}
