package testkit

import (
	"bufio"
	"io"
	"net/http"
	"os"
	"os/exec"
	ossignal "os/signal"
	"strings"
	"syscall"
	"testing"
	"time"
)

// CheckSignals runs a host and checks that the first signal only ends its readiness, and that the second one ends the
// process at once. The first line that the host prints must end in its URL, which ends in /demo/graphql. Its lead must
// be longer than a minute, so that only the second signal can end it in time.
func CheckSignals(t *testing.T, host *exec.Cmd, signal syscall.Signal) {
	t.Helper()
	// If the tests run with nohup, the host would inherit that SIGHUP is ignored. It does not inherit a handler.
	received := make(chan os.Signal, 1)
	ossignal.Notify(received, signal)
	defer ossignal.Stop(received)
	host.Stderr = os.Stderr
	stdout, err := host.StdoutPipe()
	if err == nil {
		err = host.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(time.Minute, func() { _ = host.Process.Kill() })
	defer late.Stop()
	defer func() { // without effect if the host has ended
		_ = host.Process.Kill()
		_ = host.Wait()
	}()
	first, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatalf("the host printed %q: %v", first, err)
	}
	to := strings.TrimSuffix(first[strings.Index(first, "http://"):], "/demo/graphql\n")
	await(t, to+"/readyz", http.StatusOK)

	_ = host.Process.Signal(signal) // after an error, the host stays ready
	body := await(t, to+"/readyz", http.StatusServiceUnavailable)
	if !strings.Contains(body, `"draining":{"active":true,`) {
		t.Errorf("after the first signal, GET /readyz returned %s, want draining", body)
	}
	for _, path := range []string{"/livez", "/demo/graphql?query={__typename}"} {
		if status, body, err := request(to + path); status != http.StatusOK || err != nil {
			t.Errorf("after the first signal, GET %s returned status %d, body %s and error %v, want 200",
				path, status, body, err)
		}
	}
	_ = host.Process.Signal(signal) // after an error, the host is killed late
	_, _ = io.Copy(io.Discard, stdout)
	_ = host.Wait()
	if status := host.ProcessState.Sys().(syscall.WaitStatus); status.Signal() != signal {
		t.Errorf("after the second signal, the process ended with %v, want %v", host.ProcessState, signal)
	}
}

// await requests url until the response has the status, and returns its body. It ends the test after 30 s.
func await(t *testing.T, url string, want int) string {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		status, body, err := request(url)
		if status == want && err == nil {
			return body
		}
		if time.Now().After(deadline) {
			t.Fatalf("GET %s returned status %d, %s and error %v, want status %d", url, status, body, err, want)
		}
	}
}

func request(url string) (status int, body string, err error) {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	res, err := client.Get(url)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return res.StatusCode, string(text), err
}
