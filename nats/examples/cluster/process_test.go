package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// asBroker is an environment variable. If it contains the name of a broker's configuration
// file, this program runs that broker instead of the tests.
const asBroker = "CHAINGQL_CLUSTER_BROKER"

// A process is a broker that runs in a separate process, so that it can be killed. A broker
// that is only stopped would first hand the streams that it leads over to other brokers.
type process struct {
	cmd    *exec.Cmd
	health string // URL of the health endpoint
	output bytes.Buffer
}

// ownProcess starts a broker in a separate process.
func ownProcess(opts *server.Options) (broker, error) {
	ports, err := freePorts(1, 2*stablePorts) // not the port of a stopped broker
	if err != nil {
		return nil, err
	}
	var routes []string
	for _, r := range opts.Routes {
		routes = append(routes, fmt.Sprintf("%q", r))
	}
	config := filepath.Join(filepath.Dir(opts.StoreDir), opts.ServerName+".conf")
	text := fmt.Sprintf("server_name: %s\nlisten: \"127.0.0.1:%d\"\nhttp: \"127.0.0.1:%d\"\n"+
		"jetstream { store_dir: %q }\ncluster { name: %s, listen: \"127.0.0.1:%d\", routes: [%s] }\n",
		opts.ServerName, opts.Port, ports[0], opts.StoreDir, opts.Cluster.Name, opts.Cluster.Port,
		strings.Join(routes, ", "))
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, err
	}
	p := &process{cmd: exec.Command(os.Args[0]), health: fmt.Sprintf("http://127.0.0.1:%d/healthz", ports[0])}
	p.cmd.Env = append(os.Environ(), asBroker+"="+config)
	p.cmd.Stdout, p.cmd.Stderr = &p.output, &p.output
	if _, err := p.cmd.StdinPipe(); err != nil { // when the tests end, the pipe closes and the server stops
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	end := time.Now().Add(startTimeout / 2)
	for ; !p.answers("?js-enabled-only=true"); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			p.stop()
			return nil, fmt.Errorf("the NATS server did not start in time: %s", &p.output)
		}
	}
	return p, nil
}

// serve runs a broker with a configuration file until stdin closes. It returns the exit code.
func serve(config string) int {
	opts, err := server.ProcessConfigFile(config)
	if err == nil {
		opts.NoSigs = true
		var b broker
		if b, err = inProcess(opts); err == nil {
			_, err = io.Copy(io.Discard, os.Stdin)
			b.stop()
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// current waits until broker i has caught up with the other brokers. It returns false if that
// takes longer than within.
func (b *brokers) current(i int, within time.Duration) bool {
	for end := time.Now().Add(within); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if p, up := b.running[i].(*process); up && p.answers("") {
			return true
		}
	}
	return false
}

// answers reports whether the server's health endpoint responds to query with status 200.
func (p *process) answers(query string) bool {
	client := http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Get(p.health + query)
	if err != nil {
		return false
	}
	return res.Body.Close() == nil && res.StatusCode == http.StatusOK
}

// stop kills the process.
func (p *process) stop() {
	_ = p.cmd.Process.Kill() // an error means that the process has ended already
	_ = p.cmd.Wait()
}
