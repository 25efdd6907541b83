package main

import (
	"bufio"
	"bytes"
	"context"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"
)

func TestSignalClosesSocketsAndServerExitsWithZero(t *testing.T) {
	for _, signal := range []os.Signal{syscall.SIGTERM, os.Interrupt} {
		t.Run(signal.String(), func(t *testing.T) { checkStop(t, signal) })
	}
}

// checkStop runs the server in a separate process, subscribes on a socket, sends the signal, and
// checks the close handshake of the socket and the exit code of the process.
func checkStop(t *testing.T, signal os.Signal) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	program := exec.CommandContext(ctx, os.Args[0], "-addr", "127.0.0.1:0")
	program.Env = append(os.Environ(), asProgram+"=1")
	var stderr bytes.Buffer
	program.Stderr = &stderr
	stdout, err := program.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(stdout)
	lines.Scan()
	url := strings.Replace(strings.TrimPrefix(lines.Text(), "serving on "), "http:", "ws:", 1)

	socket, _, err := websocket.Dial(ctx, url, &websocket.DialOptions{Subprotocols: []string{"graphql-ws"}})
	if err != nil {
		t.Fatalf("connecting to the server failed: %v; its stderr: %s", err, &stderr)
	}
	defer socket.CloseNow()
	say := []byte(`{"id":"1","type":"start","payload":{"query":"subscription{blocks{id}}"}}`)
	if err := socket.Write(ctx, websocket.MessageText, say); err != nil {
		t.Fatal(err)
	}
	if _, frame, err := socket.Read(ctx); err != nil || !bytes.HasPrefix(frame, []byte(`{"type":"data","id":"1"`)) {
		t.Fatalf("the first message is %s with error %v, want a block", frame, err)
	}

	signaled := time.Now()
	if err := program.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
	var last []byte
	for err == nil {
		var frame []byte
		if _, frame, err = socket.Read(ctx); err == nil {
			last = frame
		}
	}
	code := websocket.CloseStatus(err)
	if !bytes.Contains(last, []byte(`"type":"connection_error"`)) || code != websocket.StatusGoingAway {
		t.Errorf("the last message of the socket is %s, and it ended with %v; want connection_error and close code 1001",
			last, err)
	}
	for lines.Scan() {
	}
	if err := program.Wait(); err != nil {
		t.Errorf("the server exited with %v, want code 0; stderr: %s", err, &stderr)
	}
	if took := time.Since(signaled); took >= drain {
		t.Errorf("shutdown took %v, want less than the timeout of %v", took, drain)
	}
}

func TestProcessReportsUsageErrorInOneLine(t *testing.T) {
	program := exec.CommandContext(t.Context(), os.Args[0], "-port", "80")
	program.Env = append(os.Environ(), asProgram+"=1")
	output, err := program.CombinedOutput()
	if program.ProcessState.ExitCode() != exitUsage || bytes.Count(output, []byte("\n")) != 1 {
		t.Errorf("the server ended with %v and output %q, want exit code %d and one line", err, output, exitUsage)
	}
}
