package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestProgramServesProducedBlocks runs the program and queries blocks and a balance at the URL that the
// program prints.
func TestProgramServesProducedBlocks(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	output, stdout := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, []string{"-addr", "127.0.0.1:0", "-rate", "20", "-dir", t.TempDir()}, stdout)
		_ = stdout.Close()
	}()
	var url string
	for lines := bufio.NewScanner(output); url == "" && lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), "proxy "); ok {
			url = strings.TrimSpace(rest)
		}
	}
	go func() { _, _ = io.Copy(io.Discard, output) }()
	ask := func(query, want string) {
		t.Helper()
		last := ""
		for ctx.Err() == nil {
			res, err := http.Post(url, "application/json", strings.NewReader(`{"query":"`+query+`"}`))
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(res.Body)
			_ = res.Body.Close()
			if last = string(body); strings.Contains(last, want) {
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
		t.Errorf("query %s: got last response %s, want one that contains %s", query, last, want)
	}
	ask("{blockchain{blocks(workchain:-1,first:3){edges{node{seq_no}}}}}",
		`{"node":{"seq_no":1}},{"node":{"seq_no":2}},{"node":{"seq_no":3}}`)
	ask(`{blockchain{account(address:\"`+miner.String()+`\"){info{balance(format:DEC)}}}}`, `00000000"`)
	// The proxy uses one host after another. A host follows the chain from its first request on, so it is not ready at
	// once.
	for ready := 0; ready < machines && ctx.Err() == nil; {
		res, err := http.Get(strings.TrimSuffix(url, "/demo/graphql") + "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode == http.StatusOK {
			ready++
			continue
		}
		ready = 0
		time.Sleep(50 * time.Millisecond)
	}
	if err := ctx.Err(); err != nil {
		t.Error("a host did not become ready: ", err)
	}
	http.DefaultClient.CloseIdleConnections()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
