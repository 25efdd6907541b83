package attack

import (
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// treeBytes is the size in bytes of a JSON tree. A body that contains it stays below Limits.BodyBytes.
const treeBytes = 120 << 10

// jsonTrees returns attacks with JSON bodies that need many times their size in memory when decoded.
// The operation does not use this data.
func jsonTrees(full bool) []attack {
	const asks, waits = `"query":"{info{version}}"`, `"query":"{blockchain{account(address:\"1000:` +
		`1111111111111111111111111111111111111111111111111111111111111111\"){info{balance}}}}"`
	lasting, clients := 1200*time.Millisecond, []int{48}
	if full {
		lasting, clients = 4*time.Second, []int{48, 96}
	}
	var all []attack
	for _, n := range clients {
		for _, shape := range []struct{ name, item string }{
			{"empty arrays", "[],"}, {"empty objects", "{},"}, {"objects with a key", `{"":0},`},
			{"arrays in arrays", "[[[[[[[[]]]]]]]],"},
		} {
			items := strings.Repeat(shape.item, treeBytes/len(shape.item))
			tree := "[" + items[:len(items)-1] + "]"
			half := "[" + items[:len(items)/2/len(shape.item)*len(shape.item)-1] + "]"
			for _, place := range []struct{ name, body string }{
				{"variables that the operation does not declare", `{` + asks + `,"variables":{"a":` + tree + `}}`},
				{"extensions", `{` + asks + `,"extensions":{"a":` + tree + `}}`},
				{"variables and extensions",
					`{` + asks + `,"variables":{"a":` + half + `},"extensions":{"a":` + half + `}}`},
			} {
				if !full && shape.item != "[]," && place.name != "extensions" {
					continue
				}
				all = append(all, repeatedPosts(fmt.Sprintf("%d connections with %s in %s", n, shape.name, place.name),
					lasting, n, place.body))
			}
		}
	}
	// A query keeps its decoded body while it waits for the backend.
	tree := "[" + strings.Repeat("[],", treeBytes/3) + "[]]"
	all = append(all, withConnectionsFor(lasting, "150 connections with arrays in the variables of a waiting query",
		150, func(s *target) (net.Conn, error) {
			c, err := s.dial()
			if err == nil {
				_, err = c.Write(request("POST", path, `{`+waits+`,"variables":{"a":`+tree+`}}`))
			}
			return c, err
		}, func(*target) error { return nil }))
	return all
}

// repeatedPosts returns an attack by n connections that post body repeatedly at the same time.
func repeatedPosts(name string, lasting time.Duration, n int, body string) attack {
	text := request("POST", path, body, "Connection: keep-alive")
	return withConnectionsFor(lasting, name, n, func(s *target) (net.Conn, error) {
		return s.repeat(burstPause, func(int) []byte { return text })
	}, func(*target) error { return nil })
}

// burstPause is the time that a connection waits between two requests. All connections send at about
// the same time, which maximizes memory use. The pauses leave CPU time to other families.
const burstPause = 600 * time.Millisecond

// repeat opens a connection that sends text(0), text(1) and so on, pauses after each, and discards the
// responses.
func (s *target) repeat(pause time.Duration, text func(i int) []byte) (net.Conn, error) {
	c, err := s.dial()
	if err != nil {
		return nil, err
	}
	_ = c.SetDeadline(time.Time{}) // no deadline: the caller resets the connection
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
