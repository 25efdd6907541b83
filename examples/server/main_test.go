package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chaingql/chaingql/internal/testkit"
)

// asProgram is an environment variable. If it is set, the test binary runs main instead of the
// tests. Tests use it to run the server in a separate process, which can receive signals.
const asProgram = "CHAINGQL_TEST_AS_PROGRAM"

// TestMain runs the tests and fails if goroutines are still running after them.
func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	code := m.Run()
	http.DefaultClient.CloseIdleConnections()
	os.Exit(testkit.CheckLeaks(code, os.Stderr, 3*time.Second))
}

// recorded returns the path of a recording in testdata/recordings.
func recorded(name string) string {
	return filepath.Join("..", "..", "testdata", "recordings", name+".json.gz")
}

// written writes text to a temporary file and returns its path.
func written(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file.json")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestUsageErrorsExitWithCode2AndPrintOneLine(t *testing.T) {
	const block = `{"workchain":-1,"shard":"8000000000000000","seq_no":1,"hash":"%s","gen_utime":1}`
	unordered := fmt.Sprintf(`{"blocks":[`+block+`]}`, strings.Repeat("ab", 32))
	for _, test := range []struct {
		name string
		args []string
		want string // substring of the line
	}{
		{"unknown flag", []string{"-port", "80"}, "-port"},
		{"unexpected argument", []string{"chain.json"}, `"chain.json"`},
		{"flag without value", []string{"-chain"}, "-chain"},
		{"address without port", []string{"-addr", "127.0.0.1"}, "missing port"},
		{"port out of range", []string{"-addr", "127.0.0.1:99999"}, "-addr"},
		{"zero rate", []string{"-rate", "0"}, "-rate"},
		{"negative rate", []string{"-rate", "-1"}, "-rate"},
		{"NaN as rate", []string{"-rate", "NaN"}, "-rate"},
		{"infinite rate", []string{"-rate", "Inf"}, "-rate"},
		{"negative lead", []string{"-lead", "-1s"}, "-lead"},
		{"text as rate", []string{"-rate", "fast"}, "-rate"},
		{"empty project id", []string{"-project", ""}, "no project id"},
		{"slash in project id", []string{"-project", "a/b"}, `"a/b"`},
		{"quote in project id", []string{"-project", "a'b"}, `"a'b"`},
		{"dots as project id", []string{"-project", ".."}, `".."`},
		{"empty secret", []string{"-project", "demo="}, "secret"},
		{"duplicate project id", []string{"-project", "demo", "-project", "Demo=s"}, "twice"},
		{"missing chain file", []string{"-chain", "no-such-file"}, "no-such-file"},
		{"folder as chain file", []string{"-chain", "."}, "directory"},
		{"empty chain file", []string{"-chain", written(t, "")}, "file.json"},
		{"chain file without JSON", []string{"-chain", written(t, "blocks\nblocks")}, "file.json"},
		{"truncated chain file", []string{"-chain", written(t, `{"blocks":[`)}, "file.json"},
		{"invalid block", []string{"-chain", written(t, `{"blocks":[{"seq_no":-1}]}`)}, "block 1"},
		{"chain file without blocks", []string{"-chain", written(t, `{"blocks":[]}`)}, "no block"},
		{"chain file without chain_order", []string{"-chain", written(t, unordered)}, "chain_order"},
		{"missing accounts file", []string{"-accounts", "no-such-file"}, "no-such-file"},
		{"invalid account", []string{"-accounts", written(t, `{"accounts":[{"address":"x"}]}`)}, "account 1"},
		{"accounts file without accounts", []string{"-accounts", written(t, `{"accounts":[]}`)}, "no accounts"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			code := run(t.Context(), test.args, &stdout, &stderr)
			line, rest, _ := strings.Cut(stderr.String(), "\n")
			if code != exitUsage || rest != "" || !strings.HasPrefix(line, "server: ") || !strings.Contains(line, test.want) {
				t.Errorf("got exit code %d and stderr %q, want %d and one line with %q",
					code, stderr.String(), exitUsage, test.want)
			}
			if stdout.Len() > 0 {
				t.Errorf("stdout is %q, want nothing", stdout.String())
			}
		})
	}
}

func TestHelpListsAllFlags(t *testing.T) {
	for _, arg := range []string{"-h", "-help", "--help"} {
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), []string{arg}, &stdout, &stderr); code != exitDone || stderr.Len() > 0 {
			t.Errorf("%s: got exit code %d and stderr %q, want %d and nothing", arg, code, stderr.String(), exitDone)
		}
		flags := regexp.MustCompile(`(?m)^  -(\w+)`).FindAllString(stdout.String(), -1)
		if want := "[  -accounts   -addr   -chain   -lead   -project   -rate]"; fmt.Sprint(flags) != want {
			t.Errorf("%s: the help lists the flags %v, want %s", arg, flags, want)
		}
	}
}

func TestAddressInUseExitsWithCode1(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	var stderr bytes.Buffer
	code := run(t.Context(), []string{"-addr", taken.Addr().String()}, io.Discard, &stderr)
	if code != exitFailed || !strings.Contains(stderr.String(), "address already in use") {
		t.Errorf("got exit code %d and stderr %q, want %d and the reason", code, stderr.String(), exitFailed)
	}
}

// A program is a run of the server in this process.
type program struct {
	greeting string
	url      string
	stop     func() (code int, rest string) // stops the server; rest is what it printed after the greeting
}

// launch starts the server and waits until it has printed its greeting.
func launch(t *testing.T, args ...string) program {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	out, in := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		code := run(ctx, append([]string{"-addr", "127.0.0.1:0"}, args...), in, io.Discard)
		in.Close()
		ended <- code
	}()
	var greeting strings.Builder
	for !strings.Contains(greeting.String(), "npx wscat") || !strings.HasSuffix(greeting.String(), "\n\n") {
		chunk := make([]byte, 4096)
		n, err := out.Read(chunk)
		if err != nil {
			t.Fatalf("the server ended before it printed its whole greeting: %v; it printed %q", err, greeting.String())
		}
		greeting.Write(chunk[:n])
	}
	p := program{greeting: greeting.String()}
	p.url = strings.TrimPrefix(strings.SplitN(p.greeting, "\n", 2)[0], "serving on ")
	p.stop = func() (int, string) {
		cancel()
		rest, _ := io.ReadAll(out)
		return <-ended, string(rest)
	}
	return p
}

// The network's SDK for clients retries a request for two minutes if the status is 404, so a URL
// without a project must have another status.
func TestURLWithoutProjectIsNot404(t *testing.T) {
	for _, test := range []struct {
		args   []string
		status int
	}{{nil, http.StatusOK}, {[]string{"-project", "demo"}, http.StatusUnauthorized}} {
		p := launch(t, test.args...)
		for _, path := range []string{"/graphql", "/graphql/"} {
			res, err := http.Get(strings.TrimSuffix(p.url, "/demo/graphql") + path + "?query={info{version}}")
			if err != nil {
				t.Fatal(err)
			}
			_ = res.Body.Close()
			if res.StatusCode != test.status || !strings.HasPrefix(res.Header.Get("Content-Type"), "application/json") {
				t.Errorf("server with arguments %v: GET %s returned status %d and headers %v, want status %d and JSON",
					test.args, path, res.StatusCode, res.Header, test.status)
			}
		}
		p.stop()
	}
}

func TestGreetingShowsURLsAndCommands(t *testing.T) {
	open := launch(t)
	want := strings.ReplaceAll(`serving on http://ADDR/demo/graphql
simulating a chain: every second a masterchain block and one of each of two shards

# the explorer and, at /live, the blocks as they come
http://ADDR/

# the latest block
curl http://ADDR/demo/graphql -H 'Content-Type: application/json' -d '{"query":"{blockchain{blocks(workchain:-1,last:1){edges{node{hash seq_no}}}}}"}'

# a balance
curl http://ADDR/demo/graphql -H 'Content-Type: application/json' -d '{"query":"{blockchain{account(address:\"0:0fe54250faad8d67c03b8b390f49cebdec8f136bcec3d0adedf7bf550005bf8e\"){info{balance(format:DEC)}}}}"}'

# each new masterchain block
npx wscat -c ws://ADDR/demo/graphql -s graphql-ws -w -1 -x '{"id":"1","type":"start","payload":{"query":"subscription{blocks(filter:{workchain_id:{eq:-1}}){seq_no id}}"}}'

`, "ADDR", strings.TrimSuffix(strings.TrimPrefix(open.url, "http://"), "/demo/graphql"))
	if open.greeting != want {
		t.Errorf("got greeting:\n%s\nwant:\n%s", open.greeting, want)
	}
	open.stop()

	const chain = `{"blocks":[
		{"workchain":-1,"shard":"8000000000000000","seq_no":7,"hash":"%[1]s","gen_utime":1,"chain_order":"07m"},
		{"workchain":-1,"shard":"8000000000000000","seq_no":8,"hash":"%[1]s","gen_utime":2}]}`
	for _, test := range []struct {
		name string
		args []string
		want []string
	}{
		{
			"first project without a secret", []string{"-project", "shop", "-project", "other=x"},
			[]string{"/shop/graphql\n", "curl http://127", "npx wscat -c ws://127"},
		},
		{
			"project with a secret", []string{"-project", "shop=s3cret"},
			[]string{"/shop/graphql\n", "curl -u ':s3cret' http://127", "npx wscat --auth ':s3cret' -c ws://127"},
		},
		{
			"secret with a quote", []string{"-project", "shop=it's"},
			[]string{`curl -u ':it'\''s' http://127`, `npx wscat --auth ':it'\''s' -c`},
		},
		{"all interfaces", []string{"-addr", "0.0.0.0:0"}, []string{"serving on http://127.0.0.1:"}},
		{"recording", []string{"-chain", written(t, fmt.Sprintf(chain, strings.Repeat("ab", 32)))}, []string{
			"\nreplaying 1 recorded blocks in 3s, 10 a second, then simulating\n",
			"\nleaving out 1 recorded blocks without chain_order\n",
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := launch(t, test.args...)
			defer p.stop()
			for _, part := range test.want {
				if !strings.Contains(p.greeting, part) {
					t.Errorf("the greeting does not contain %q:\n%s", part, p.greeting)
				}
			}
		})
	}
}

var curlLine = regexp.MustCompile(`(?m)^curl (?:-u '([^']*)' )?(\S+) -H '([^:]+): ([^']+)' -d '([^']+)'$`)

// curl sends the request of the n-th curl command in the greeting, counted from 0, and decodes the
// response.
func (p program) curl(t *testing.T, n int, answer any) {
	t.Helper()
	line := curlLine.FindAllStringSubmatch(p.greeting, -1)[n]
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, line[2], strings.NewReader(line[5]))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set(line[3], line[4])
	if line[1] != "" {
		r.SetBasicAuth("", strings.TrimPrefix(line[1], ":"))
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("POST %s returned status %s, want 200", line[2], resp.Status)
	}
	if err := json.NewDecoder(resp.Body).Decode(answer); err != nil {
		t.Fatal(err)
	}
}

func TestCurlCommandsInGreetingWork(t *testing.T) {
	for _, args := range [][]string{nil, {"-project", "shop"}, {"-project", "shop=s3cret"}} {
		p := launch(t, args...)
		var latest struct {
			Data struct{ Blockchain struct{ Blocks page } }
		}
		for len(latest.Data.Blockchain.Blocks.Edges) == 0 { // the first block may not exist yet
			p.curl(t, 0, &latest)
		}
		if b := latest.Data.Blockchain.Blocks.Edges[0].Node; b.SeqNo == 0 || len(b.Hash) != 64 {
			t.Errorf("server with arguments %v: the latest block is %+v, want a seq_no and a hash", args, b)
		}
		var account struct {
			Data struct {
				Blockchain struct {
					Account struct{ Info struct{ Balance string } }
				}
			}
		}
		p.curl(t, 1, &account)
		if got := account.Data.Blockchain.Account.Info.Balance; got != "1000000000" {
			t.Errorf("server with arguments %v: the balance is %q, want 1000000000", args, got)
		}
		if code, rest := p.stop(); code != exitDone || rest != "stopping\n" {
			t.Errorf("server with arguments %v: got exit code %d and final output %q, want %d and stopping",
				args, code, rest, exitDone)
		}
	}
}

func TestRequestWithoutSecretIs401(t *testing.T) {
	p := launch(t, "-project", "shop=s3cret")
	defer p.stop()
	for _, path := range []string{p.url, p.url + "/", strings.Replace(p.url, "/shop/", "/demo/", 1)} {
		resp, err := http.Get(path + "?query={info{version}}")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("GET %s without a secret returned status %s, want 401", path, resp.Status)
		}
	}
}
