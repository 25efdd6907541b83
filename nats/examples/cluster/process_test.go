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

// asBroker is the environment variable with the configuration file of a broker. If it is
// set, this program runs that broker instead of the tests.
const asBroker = "CHAINGQL_CLUSTER_BROKER"

// A process is a broker in its own process, which can be killed. A server that is stopped
// would hand over to the others first.
type process struct {
	cmd    *exec.Cmd
	health string
	output bytes.Buffer
}

// ownProcess starts a broker in its own process.
func ownProcess(opts *server.Options) (broker, error) {
	ports, err := freePorts(1, 2*stablePorts) // not the port of a broker that is down
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
		opts.ServerName, opts.Port, ports[0], opts.StoreDir, opts.Cluster.Name, opts.Cluster.Port, strings.Join(routes, ", "))
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, err
	}
	p := &process{cmd: exec.Command(os.Args[0]), health: fmt.Sprintf("http://127.0.0.1:%d/healthz", ports[0])}
	p.cmd.Env = append(os.Environ(), asBroker+"="+config)
	p.cmd.Stdout, p.cmd.Stderr = &p.output, &p.output
	if _, err := p.cmd.StdinPipe(); err != nil { // the pipe closes if the tests end, and the server stops
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	for end := time.Now().Add(startTimeout / 2); !p.answers("?js-enabled-only=true"); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			p.stop()
			return nil, fmt.Errorf("a NATS server does not start: %s", &p.output)
		}
	}
	return p, nil
}

// serve runs a broker until stdin closes.
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

// current waits until a server has caught up with the others.
func (b *brokers) current(i int, within time.Duration) bool {
	for end := time.Now().Add(within); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if p, up := b.running[i].(*process); up && p.answers("") {
			return true
		}
	}
	return false
}

// answers reports whether the server's health endpoint returns 200.
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
	_ = p.cmd.Process.Kill() // an error means that it has ended already
	_ = p.cmd.Wait()
}
