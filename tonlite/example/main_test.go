package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestExampleServesReplayedChain runs the program as documented and queries it.
func TestExampleServesReplayedChain(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	out, in := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		args := []string{"-replay", "generated", "-pace", "20ms", "-addr", "127.0.0.1:0", "-drain-lead", "2s"}
		ended <- run(ctx, args, in)
		_ = in.Close()
	}()
	buf := make([]byte, 4096)
	n, err := out.Read(buf)
	if err != nil {
		t.Fatal(err, <-ended)
	}
	url := regexp.MustCompile(`http://\S+`).FindString(string(buf[:n]))
	go func() { _, _ = io.Copy(io.Discard, out) }()

	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: 10 * time.Second}
	ask := func(query string) string {
		res, err := client.Post(url, "application/json", strings.NewReader(query))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(body)
	}
	const latest = `{"query":"{blockchain{blocks(workchain:-1,last:1){edges{node{seq_no}}}}}"}`
	first := ask(latest)
	var seqNo int
	if _, number, ok := strings.Cut(first, `"seq_no":`); ok {
		_, _ = fmt.Sscan(number, &seqNo) // 0 if there is none
	}
	if seqNo < 21 {
		t.Errorf("latest block: got response %s, want at least seq_no 21", first)
	}
	for end := time.Now().Add(10 * time.Second); ask(latest) == first; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the latest block did not change within 10 seconds")
		}
	}
	cancel()
	ready := strings.Replace(url, "/demo/graphql", "/readyz", 1)
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		res, err := client.Get(ready)
		if err != nil || time.Now().After(end) {
			t.Fatalf("after a signal, readiness did not end before the shutdown: got error %v", err)
		}
		_ = res.Body.Close()
		if res.StatusCode == http.StatusServiceUnavailable {
			break
		}
	}
	if got := ask(latest); !strings.Contains(got, `"seq_no":`) {
		t.Errorf("before the shutdown, the latest block is %s", got)
	}
	if err := <-ended; err != nil {
		t.Errorf("run: got error %v after its context was canceled", err)
	}
}

func TestExampleReportsMissingFlags(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), nil, &out); err == nil || !strings.Contains(err.Error(), "-config global.config.json") {
		t.Errorf("run without flags: got error %v, want one that names the flag -config", err)
	}
}
