package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	_ "net/http/pprof" // at /debug/pprof of the process that serves

	"github.com/chaingql/chaingql/test/bench/source"
)

// A state is what a server says of itself.
type state struct {
	CPU time.Duration // nanoseconds of processor time
	RSS int64         // bytes
	At  int64         // nanoseconds since 1970, when it was asked to do something
}

// serve is a peer in a process of its own: it prints its address, and then does
// what lines of its standard input say, answering each with its state.
func serve(args []string) error {
	if len(args) != 1 {
		return errors.New("serve: which peer?")
	}
	s, err := source.New()
	if err != nil {
		return err
	}
	h, err := open(args[0], s, nil)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/{project}/graphql", h)
	mux.Handle("/debug/pprof/", http.DefaultServeMux)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: mux}
	go func() { _ = server.Serve(listener) }() // until Close
	defer server.Close()
	out := json.NewEncoder(os.Stdout)
	if err := out.Encode(listener.Addr().String()); err != nil {
		return err
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		at := time.Now().UnixNano()
		if err := obey(lines.Text(), s); err != nil {
			return err
		}
		rss, err := resident()
		if err != nil {
			return err
		}
		if err := out.Encode(state{cpu(), rss, at}); err != nil {
			return err
		}
	}
	return lines.Err()
}

// obey does what one line says: "append N" grows the chain by N blocks at once,
// "free" gives back unused memory, "state" does nothing.
func obey(line string, s *source.Source) error {
	word, number, _ := strings.Cut(line, " ")
	switch word {
	case "state":
	case "free":
		debug.FreeOSMemory()
	case "append":
		n, err := strconv.Atoi(number)
		if err != nil {
			return err
		}
		for range n {
			if err := s.Grow(); err != nil {
				return err
			}
		}
	default:
		return fmt.Errorf("serve: %q", line)
	}
	return nil
}

// resident is the memory of this process that is in RAM.
func resident() (int64, error) {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, err
	}
	var size, pages int64
	if _, err := fmt.Sscan(string(text), &size, &pages); err != nil {
		return 0, err
	}
	return pages * int64(os.Getpagesize()), nil
}
