package gqlws

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// The transcripts in testdata/<subprotocol> are txtar archives. Each file in an archive describes one connection, with
// lines of these forms:
//
//	-- name --            the header of the file: the connection starts
//	-> {…}                the peer sends a text frame; also -> BIN {…}, -> PING, -> CLOSE
//	<- {…}                the peer receives a message; also <- PONG, <- CUT, <- CLOSE with code
//	                      and reason
//	.. 15s                the peer has received nothing else, and 15 seconds pass
//	!! push 1 {…}         the first stream has a payload; also
//	                      !! end 1, !! fail 1 {…}, !! lose 1 {…}, !! break 1, !! panic 1,
//	                      !! at 1 7 (sets its cursor), !! gap 1 {…} (sets the error of Position),
//	                      !! release (lets {wait} and {stubborn} return), !! shutdown
//	== 2                  two streams are open
//
// After the last line of a file, the peer must receive nothing more. Lines that start with # are comments.
func TestConnectionsFollowTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*/*.txtar")
	if err != nil || len(files) < 3 {
		t.Fatalf("found %d transcripts, error %v, want at least 3", len(files), err)
	}
	for _, file := range files {
		for _, tr := range readTranscripts(t, file) {
			t.Run(tr.protocol+"/"+tr.name, func(t *testing.T) {
				synctest.Test(t, tr.play)
			})
		}
	}
}

type transcript struct {
	protocol string
	name     string
	file     string
	lines    []line
}

type line struct {
	number int
	text   string
}

func readTranscripts(t *testing.T, file string) []transcript {
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all []transcript
	sc := bufio.NewScanner(f)
	for n := 1; sc.Scan(); n++ {
		text := strings.TrimSpace(sc.Text())
		name, begins := fileMarker(text)
		switch {
		case begins:
			all = append(all, transcript{protocol: filepath.Base(filepath.Dir(file)), name: name, file: file})
		case text == "" || strings.HasPrefix(text, "#"):
		case len(all) == 0:
			t.Fatalf("%s:%d: line before the first header (-- name --)", file, n)
		default:
			tr := &all[len(all)-1]
			tr.lines = append(tr.lines, line{n, text})
		}
	}
	if err := sc.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

func (tr transcript) play(t *testing.T) {
	s := NewServer(testOptions)
	ss := newFakeSession(t)
	p := dialAs(t, s, ss, tr.protocol, nil).startReading()
	over := make(chan struct{}, 1)
	shuttingDown := false

	for _, l := range tr.lines {
		command, arg, _ := strings.Cut(l.text, " ")
		synctest.Wait()
		switch command {
		case "->":
			tr.send(p, arg)
		case "<-":
			if got := p.next(); got != arg {
				t.Errorf("%s:%d: received %s\nwant %s", tr.file, l.number, got, arg)
			}
		case "..":
			d, err := time.ParseDuration(arg)
			if err != nil {
				t.Fatalf("%s:%d: %v", tr.file, l.number, err)
			}
			if got := p.next(); got != "" {
				t.Errorf("%s:%d: received %s\nwant nothing", tr.file, l.number, got)
			}
			time.Sleep(d)
		case "!!":
			if arg == "shutdown" {
				shuttingDown = true
				go func() { shutdown(t, s); over <- struct{}{} }()
			} else {
				tr.act(t, ss, arg)
			}
		case "==":
			if got := strconv.Itoa(ss.openStreams()); got != arg {
				t.Errorf("%s:%d: %s streams are open, want %s", tr.file, l.number, got, arg)
			}
		default:
			t.Fatalf("%s:%d: unknown command %q", tr.file, l.number, command)
		}
	}

	if got := p.next(); got != "" {
		t.Errorf("%s: after the last line received %s\nwant nothing", tr.file, got)
	}
	p.conn.Close()
	if !shuttingDown {
		shutdown(t, s)
	} else {
		<-over
	}
	if n := ss.openStreams(); n != 0 {
		t.Errorf("%s: %d streams are open after the connection has ended, want none", tr.file, n)
	}
	if ss.opened != tr.protocol || !ss.closed {
		t.Errorf("%s: Opened received %q and Closed was called: %v, want %q and true",
			tr.file, ss.opened, ss.closed, tr.protocol)
	}
}

func (tr transcript) send(p *peer, arg string) {
	switch {
	case strings.HasPrefix(arg, "BIN "):
		_ = p.send(opBinary, []byte(arg[len("BIN "):]))
	case arg == "PING":
		_ = p.send(opPing, []byte("hello"))
	case arg == "CLOSE":
		_ = p.send(opClose, []byte{0x03, 0xe8})
	default:
		p.sendText(arg)
	}
}

func (tr transcript) act(t *testing.T, ss *fakeSession, arg string) {
	if arg == "release" {
		close(ss.release)
		return
	}
	f := strings.SplitN(arg+"  ", " ", 3)
	n, err := strconv.Atoi(f[1])
	if err != nil {
		t.Fatal(err)
	}
	st, rest := ss.stream(n), strings.TrimSpace(f[2])
	failure := &RequestError{Errors: []json.RawMessage{json.RawMessage(rest)}, Lost: f[0] != "fail"}
	switch f[0] {
	case "push":
		st.push(rest)
	case "at":
		st.setCursor(rest)
	case "gap":
		st.mu.Lock()
		st.pending = failure
		st.mu.Unlock()
	case "end":
		st.end(io.EOF)
	case "fail", "lose":
		st.end(failure)
	case "break":
		st.end(io.ErrUnexpectedEOF)
	case "panic":
		st.mu.Lock()
		st.panicInCalls = true
		st.mu.Unlock()
		st.wake.Wake()
	default:
		t.Fatalf("unknown command %q", arg)
	}
}

// fileMarker returns the name in the header of a txtar file. ok reports whether line is such a header.
func fileMarker(line string) (name string, ok bool) {
	name, ok = strings.CutPrefix(line, "-- ")
	if ok {
		name, ok = strings.CutSuffix(name, " --")
	}
	return name, ok
}
