package chaingql_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql"
)

// TestSDKTranscriptMatchesTheRecording plays testdata/sdk.txt. The SDK sends the lines that begin with >, and must
// receive those that begin with <. The other lines are requests, committed blocks and pauses.
func TestSDKTranscriptMatchesTheRecording(t *testing.T) {
	script, err := os.ReadFile("testdata/sdk.txt")
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		chain := referenceChain(t)
		projects := chaingql.StaticProjects{"demo": {Secret: "s3cret", RequireSecret: true}}
		h, _ := newHandler(t, chain, chaingql.Options{Authorizer: projects})
		n := serve(t, mounted(h))
		client := n.client()
		defer client.CloseIdleConnections()
		var s *socket
		var post string
		var played strings.Builder
		received := func(lines ...string) {
			for _, line := range lines {
				fmt.Fprintf(&played, "< %s\n", line)
			}
		}
		ask := func(method, path, body string) {
			r, err := http.NewRequest(method, "http://api.example"+path, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Authorization", basic(":s3cret"))
			r.Header.Set("Tonclient-Core-Version", "1.45.0")
			if method == "POST" {
				r.Header.Set("Content-Type", "application/json")
			}
			res, err := client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			response, err := io.ReadAll(res.Body)
			if err != nil {
				t.Fatal(err)
			}
			received(fmt.Sprint(res.StatusCode, " ", res.Header.Get("Content-Type")), string(response))
		}
		for line := range strings.Lines(string(script)) {
			line = strings.TrimSuffix(line, "\n")
			if strings.HasPrefix(line, "< ") {
				continue
			}
			fmt.Fprintln(&played, line)
			word, rest, _ := strings.Cut(line, " ")
			switch word {
			case "", "#":
			case "GET":
				ask("GET", rest, "")
			case "POST":
				post = rest
			case "WS":
				var err error
				if s, _, err = n.open(t, rest, "Tonclient-Core-Version", "1.45.0"); err != nil {
					t.Fatal(err)
				}
				post = ""
			case ">":
				if post != "" {
					ask("POST", post, rest)
					continue
				}
				s.send(rest)
				received(s.receive()...)
			case "commit":
				seqNo, _ := strconv.ParseUint(rest, 10, 32)
				commit(t, chain, masterBlock(uint32(seqNo), fmt.Sprintf("%064x", seqNo)))
				received(s.receive()...)
			case "wait":
				d, err := time.ParseDuration(rest)
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(d)
				received(s.receive()...)
			default:
				t.Fatalf("testdata/sdk.txt has an unknown line: %s", line)
			}
		}
		golden(t, "sdk.txt", played.String())
	})
}
