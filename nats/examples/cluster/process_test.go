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

// asBroker names the settings that this program is to serve, in place of testing.
const asBroker = "CHAINGQL_CLUSTER_BROKER"

// A process is a broker in one of its own, which can be killed: a server that is
// told to stop hands over to the others first.
type process struct {
	cmd    *exec.Cmd
	health string
	said   bytes.Buffer
}

// mortal starts one.
func mortal(opts *server.Options) (broker, error) {
	ports, err := free(1, 2*lasting) // none that another one, which is down, comes back to
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
	p.cmd.Stdout, p.cmd.Stderr = &p.said, &p.said
	if _, err := p.cmd.StdinPipe(); err != nil { // which ends with the tests, and the server with it
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	for end := time.Now().Add(gather / 2); !p.answers("?js-enabled-only=true"); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			p.stop()
			return nil, fmt.Errorf("a NATS server does not come up: %s", &p.said)
		}
	}
	return p, nil
}

// serve is what that process does.
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

// answers asks the server itself whether all is well with it.
func (p *process) answers(query string) bool {
	client := http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Get(p.health + query)
	if err != nil {
		return false
	}
	return res.Body.Close() == nil && res.StatusCode == http.StatusOK
}

// stop kills it.
func (p *process) stop() {
	_ = p.cmd.Process.Kill() // where that fails it is gone
	_ = p.cmd.Wait()
}
