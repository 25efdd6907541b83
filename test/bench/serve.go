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

	_ "net/http/pprof" // registers handlers for profiles of the server process

	"github.com/chaingql/chaingql/test/bench/source"
)

// A state holds the resource usage of a server.
type state struct {
	CPU time.Duration // CPU time since the start
	RSS int64         // resident memory in bytes
	At  int64         // time when the command arrived, as Unix time in nanoseconds
}

// serve runs a peer as a server process. It prints its address, executes the command in each line of its
// standard input, and replies to each command with its state.
func serve(args []string) error {
	if len(args) != 1 {
		return errors.New("serve needs one argument, the name of the peer")
	}
	s, err := source.New()
	if err != nil {
		return err
	}
	h, err := open(args[0], s, false, nil)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle(pattern, h)
	mux.Handle("/debug/pprof/", http.DefaultServeMux)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if args[0] == blocking {
		listener = wrappedListener{listener}
	}
	server := &http.Server{Handler: mux}
	go func() { _ = server.Serve(listener) }() // returns after Close
	defer server.Close()
	out := json.NewEncoder(os.Stdout)
	if err := out.Encode(listener.Addr().String()); err != nil {
		return err
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		at := time.Now().UnixNano()
		if err := execute(lines.Text(), s); err != nil {
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

// A wrappedListener returns connections of a type that is not in package net.
type wrappedListener struct{ net.Listener }

func (l wrappedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	return struct{ net.Conn }{conn}, err
}

// execute executes one of these commands:
//   - "append N" appends N blocks to the chain at once
//   - "free" returns unused memory to the system
//   - "state" does nothing
func execute(line string, s *source.Source) error {
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
		return fmt.Errorf("server received an unknown command: %q", line)
	}
	return nil
}

// resident returns the resident memory of this process in bytes.
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
