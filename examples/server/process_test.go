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

	"github.com/chaingql/chaingql/internal/testkit"
)

func TestSignalEndsSocketsAndProgramExitsWithZero(t *testing.T) {
	for _, signal := range []os.Signal{syscall.SIGTERM, os.Interrupt, syscall.SIGHUP} {
		t.Run(signal.String(), func(t *testing.T) { stopsOn(t, signal) })
	}
}

// stopsOn checks that the program shuts down gracefully when it receives the signal.
func stopsOn(t *testing.T, signal os.Signal) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	program := exec.CommandContext(ctx, os.Args[0], "-addr", "127.0.0.1:0", "-drain-lead", "0")
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
		t.Fatalf("dialing %s failed: %v; stderr: %s", url, err, &stderr)
	}
	defer socket.CloseNow()
	say := []byte(`{"id":"1","type":"start","payload":{"query":"subscription{blocks{id}}"}}`)
	if err := socket.Write(ctx, websocket.MessageText, say); err != nil {
		t.Fatal(err)
	}
	if _, frame, err := socket.Read(ctx); err != nil || !bytes.HasPrefix(frame, []byte(`{"type":"data","id":"1"`)) {
		t.Fatalf("received %s, error %v, want a data message", frame, err)
	}

	asked := time.Now()
	if err := program.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
	var told []byte
	for err == nil {
		var frame []byte
		if _, frame, err = socket.Read(ctx); err == nil {
			told = frame
		}
	}
	if !bytes.Contains(told, []byte(`"type":"connection_error"`)) ||
		websocket.CloseStatus(err) != websocket.StatusGoingAway {
		t.Errorf("the socket ended with message %s and error %v, want connection_error and close code 1001", told, err)
	}
	for lines.Scan() {
	}
	if err := program.Wait(); err != nil {
		t.Errorf("the program ended with error %v; stderr: %s", err, &stderr)
	}
	if took := time.Since(asked); took >= drain {
		t.Errorf("shutdown took %v, want less than the timeout of %v", took, drain)
	}
}

func TestFirstSignalEndsReadinessOnlyAndSecondSignalEndsTheProcess(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP} {
		t.Run(signal.String(), func(t *testing.T) {
			program := exec.Command(os.Args[0], "-addr", "127.0.0.1:0", "-drain-lead", "1h")
			program.Env = append(os.Environ(), asProgram+"=1")
			testkit.CheckSignals(t, program, signal)
		})
	}
}

func TestProgramPrintsUsageErrorAsOneLine(t *testing.T) {
	program := exec.CommandContext(t.Context(), os.Args[0], "-port", "80")
	program.Env = append(os.Environ(), asProgram+"=1")
	output, err := program.CombinedOutput()
	if program.ProcessState.ExitCode() != exitUsage || bytes.Count(output, []byte("\n")) != 1 {
		t.Errorf("the program ended with error %v and output %q, want exit code %d and one line",
			err, output, exitUsage)
	}
}
