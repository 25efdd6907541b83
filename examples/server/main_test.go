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

// asProgram is an environment variable. If it is set, the test binary runs the program instead of the tests. A test can
// thus run the program in a separate process, which can receive signals.
const asProgram = "CHAINGQL_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	code := m.Run()
	http.DefaultClient.CloseIdleConnections()
	os.Exit(testkit.CheckLeaks(code, os.Stderr, 3*time.Second))
}

// recorded returns the path of the recording with the given name.
func recorded(name string) string {
	return filepath.Join("..", "..", "testdata", "recordings", name+".json.gz")
}

// written returns the path of a new file that contains text.
func written(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file.json")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestUsageErrorIsOneLineWithExitCode2(t *testing.T) {
	const block = `{"workchain":-1,"shard":"8000000000000000","seq_no":1,"hash":"%s","gen_utime":1}`
	unordered := fmt.Sprintf(`{"blocks":[`+block+`]}`, strings.Repeat("ab", 32))
	for _, test := range []struct {
		name string
		args []string
		want string // substring of the line
	}{
		{"unknown flag", []string{"-port", "80"}, "-port"},
		{"argument", []string{"chain.json"}, `"chain.json"`},
		{"flag without value", []string{"-chain"}, "-chain"},
		{"address without port", []string{"-addr", "127.0.0.1"}, "missing port"},
		{"port out of range", []string{"-addr", "127.0.0.1:99999"}, "-addr"},
		{"rate zero", []string{"-rate", "0"}, "-rate"},
		{"rate negative", []string{"-rate", "-1"}, "-rate"},
		{"rate NaN", []string{"-rate", "NaN"}, "-rate"},
		{"rate infinite", []string{"-rate", "Inf"}, "-rate"},
		{"epoch with a dash", []string{"-epoch", "mk-2"}, "-epoch"},
		{"epoch too long", []string{"-epoch", strings.Repeat("a", 33)}, "-epoch"},
		{"per-address negative", []string{"-per-address", "-1"}, "-per-address"},
		{"lead negative", []string{"-lead", "-1s"}, "-lead"},
		{"rate no number", []string{"-rate", "fast"}, "-rate"},
		{"project empty", []string{"-project", ""}, "not a project id"},
		{"project with slash", []string{"-project", "a/b"}, `"a/b"`},
		{"project with quote", []string{"-project", "a'b"}, `"a'b"`},
		{"project dots", []string{"-project", ".."}, `".."`},
		{"secret empty", []string{"-project", "demo="}, "secret"},
		{"project twice", []string{"-project", "demo", "-project", "Demo=s"}, "twice"},
		{"chain not there", []string{"-chain", "no-such-file"}, "no-such-file"},
		{"chain a folder", []string{"-chain", "."}, "directory"},
		{"chain empty", []string{"-chain", written(t, "")}, "file.json"},
		{"chain no JSON", []string{"-chain", written(t, "blocks\nblocks")}, "file.json"},
		{"chain cut short", []string{"-chain", written(t, `{"blocks":[`)}, "file.json"},
		{"chain with a wrong block", []string{"-chain", written(t, `{"blocks":[{"seq_no":-1}]}`)}, "block 1"},
		{"chain without blocks", []string{"-chain", written(t, `{"blocks":[]}`)}, "no block"},
		{"chain without chain_order", []string{"-chain", written(t, unordered)}, "chain_order"},
		{"accounts not there", []string{"-accounts", "no-such-file"}, "no-such-file"},
		{"accounts wrong", []string{"-accounts", written(t, `{"accounts":[{"address":"x"}]}`)}, "account 1"},
		{"accounts without any", []string{"-accounts", written(t, `{"accounts":[]}`)}, "no accounts"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			code := run(t.Context(), test.args, &stdout, &stderr)
			line, rest, _ := strings.Cut(stderr.String(), "\n")
			if code != exitUsage || rest != "" || !strings.HasPrefix(line, "server: ") ||
				!strings.Contains(line, test.want) {
				t.Errorf("exit code %d, want %d; stderr %q, want one line with %q", code, exitUsage, stderr.String(),
					test.want)
			}
			if stdout.Len() > 0 {
				t.Errorf("stdout is %q, want it to be empty", stdout.String())
			}
		})
	}
}

func TestHelpListsFlags(t *testing.T) {
	for _, arg := range []string{"-h", "-help", "--help"} {
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), []string{arg}, &stdout, &stderr); code != exitDone || stderr.Len() > 0 {
			t.Errorf("%s: exit code %d, stderr %q, want %d and no output", arg, code, stderr.String(), exitDone)
		}
		flags := regexp.MustCompile(`(?m)^  -([\w-]+)`).FindAllString(stdout.String(), -1)
		const want = "[  -accounts   -addr   -chain   -drain-lead   -epoch   -lead   -per-address   -project   -rate]"
		if fmt.Sprint(flags) != want {
			t.Errorf("%s: flags %v, want %s", arg, flags, want)
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
		t.Errorf("exit code %d, stderr %q, want %d and the error of the address", code, stderr.String(), exitFailed)
	}
}

// A program is the server, which runs in the process of the test.
type program struct {
	greeting string
	url      string
	stop     func() (code int, rest string)
}

// launch starts the program and waits until it has printed its greeting.
func launch(t *testing.T, args ...string) program {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	out, in := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		code := run(ctx, append([]string{"-addr", "127.0.0.1:0", "-drain-lead", "0"}, args...), in, io.Discard)
		in.Close()
		ended <- code
	}()
	var greeting strings.Builder
	for !strings.Contains(greeting.String(), "npx wscat") || !strings.HasSuffix(greeting.String(), "\n\n") {
		chunk := make([]byte, 4096)
		n, err := out.Read(chunk)
		if err != nil {
			t.Fatalf("reading the greeting failed after %q: %v", greeting.String(), err)
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

// The SDK retries after a 404 response for two minutes. A URL without a project must therefore get another response.
func TestURLWithoutProjectReceivesJSONInsteadOf404(t *testing.T) {
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
				t.Errorf("with %v, GET %s returned status %d with headers %v, want status %d and JSON",
					test.args, path, res.StatusCode, res.Header, test.status)
			}
		}
		p.stop()
	}
}

func TestGreetingContainsExampleCommands(t *testing.T) {
	open := launch(t)
	want := strings.ReplaceAll(`serving on http://ADDR/demo/graphql
simulating a chain: every second one masterchain block and one block in each of two shards

# the explorer, with a page of live blocks at /live
http://ADDR/

# the latest block
curl http://ADDR/demo/graphql -H 'Content-Type: application/json' `+
		`-d '{"query":"{blockchain{blocks(workchain:-1,last:1){edges{node{hash seq_no}}}}}"}'

# a balance
curl http://ADDR/demo/graphql -H 'Content-Type: application/json' `+
		`-d '{"query":"{blockchain{account(address:\"`+
		`0:0fe54250faad8d67c03b8b390f49cebdec8f136bcec3d0adedf7bf550005bf8e\"){info{balance(format:DEC)}}}}"}'

# each new masterchain block
npx wscat -c ws://ADDR/demo/graphql -s graphql-ws -w -1 -x '{"id":"1","type":"start","payload":`+
		`{"query":"subscription{blocks(filter:{workchain_id:{eq:-1}}){seq_no id}}"}}'

`, "ADDR", strings.TrimSuffix(strings.TrimPrefix(open.url, "http://"), "/demo/graphql"))
	if open.greeting != want {
		t.Errorf("greeting:\n%s\nwant:\n%s", open.greeting, want)
	}
	open.stop()

	const chain = `{"blocks":[{"workchain":-1,"shard":"8000000000000000","seq_no":7,"hash":"%[1]s",` +
		`"gen_utime":1,"chain_order":"07m"},
		{"workchain":-1,"shard":"8000000000000000","seq_no":8,"hash":"%[1]s","gen_utime":2}]}`
	for _, test := range []struct {
		name string
		args []string
		want []string
	}{
		{"project", []string{"-project", "shop", "-project", "other=x"},
			[]string{"/shop/graphql\n", "curl http://127", "npx wscat -c ws://127"}},
		{"secret", []string{"-project", "shop=s3cret"}, []string{"/shop/graphql\n", "curl -u ':s3cret' http://127",
			"npx wscat --auth ':s3cret' -c ws://127"}},
		{"quoted secret", []string{"-project", "shop=it's"}, []string{`curl -u ':it'\''s' http://127`,
			`npx wscat --auth ':it'\''s' -c`}},
		{"everywhere", []string{"-addr", "0.0.0.0:0"}, []string{"serving on http://127.0.0.1:"}},
		{"recording", []string{"-chain", written(t, fmt.Sprintf(chain, strings.Repeat("ab", 32)))},
			[]string{"\nreplaying 1 recorded blocks after 3s at 10 blocks per second, then simulating the chain\n",
				"\nskipping 1 recorded blocks without chain_order\n"}},
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

// curl sends the request of the nth printed curl command, counted from 0, and decodes the response into answer.
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
		t.Fatal(resp.Status)
	}
	if err := json.NewDecoder(resp.Body).Decode(answer); err != nil {
		t.Fatal(err)
	}
}

func TestPrintedCurlCommandsWork(t *testing.T) {
	for _, args := range [][]string{nil, {"-project", "shop"}, {"-project", "shop=s3cret"}} {
		p := launch(t, args...)
		var latest struct {
			Data struct{ Blockchain struct{ Blocks page } }
		}
		for len(latest.Data.Blockchain.Blocks.Edges) == 0 { // the first block may not exist yet
			p.curl(t, 0, &latest)
		}
		if b := latest.Data.Blockchain.Blocks.Edges[0].Node; b.SeqNo == 0 || len(b.Hash) != 64 {
			t.Errorf("with %v, the latest block is %+v, want one with a number and a hash", args, b)
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
			t.Errorf("with %v, the balance is %q, want 1000000000", args, got)
		}
		if code, rest := p.stop(); code != exitDone || rest != "stopping\n" {
			t.Errorf("with %v, the program ended with exit code %d and output %q, want %d and \"stopping\"",
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
			t.Errorf("GET %s returned status %s, want 401", path, resp.Status)
		}
	}
}
