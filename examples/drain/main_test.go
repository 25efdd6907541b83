package main

import (
	"context"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

// A slow chain is a Backend. Its Balance blocks until answer is closed.
type slow struct {
	*memchain.Chain
	asked, answer chan struct{}
}

func (s slow) Balance(context.Context, chaingql.Address) (*big.Int, error) {
	close(s.asked)
	<-s.answer
	return big.NewInt(7), nil
}

func TestDrainFinishesQueriesAndSendsResumeCursors(t *testing.T) {
	chain := slow{memchain.New(), make(chan struct{}), make(chan struct{})}
	if err := chain.Append(chaingql.Block{Workchain: -1, Shard: 1 << 63, SeqNo: 1, Time: time.Unix(1e9, 0),
		Cursor: "01m"}); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	to := "http://" + listener.Addr().String()
	limited, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	ctx, term := context.WithCancel(t.Context())
	defer term()
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, listener, chain, 0) }()

	socket, _, err := websocket.Dial(limited, to+"/demo/graphql",
		&websocket.DialOptions{Subprotocols: []string{"graphql-transport-ws"}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = socket.CloseNow() }()
	for _, frame := range []string{`{"type":"connection_init"}`,
		`{"id":"1","type":"subscribe","payload":{"query":"subscription{blocks(after:\"\"){seq_no}}"}}`} {
		if err := socket.Write(limited, websocket.MessageText, []byte(frame)); err != nil {
			t.Fatal(err)
		}
	}
	hear := func(want string) {
		t.Helper()
		_, frame, err := socket.Read(limited)
		if err != nil || string(frame) != want {
			t.Errorf("got %s, %v, want %s", frame, err, want)
		}
	}
	hear(`{"type":"connection_ack"}`)
	hear(`{"type":"next","id":"1","payload":{"data":{"blocks":{"seq_no":1}}}}`)

	answered := make(chan string, 1)
	go func() {
		_, answer, err := get(to + `/demo/graphql?query={blockchain{account(address:"0:` + strings.Repeat("ab", 32) +
			`"){info{balance}}}}`)
		if err != nil {
			answer = err.Error()
		}
		answered <- answer
	}()
	select {
	case <-chain.asked:
	case <-limited.Done():
		t.Fatal("the query did not reach the backend")
	}
	term()
	hear(`{"type":"error","id":"1","payload":[{"message":"Service is shutting down",` +
		`"extensions":{"code":"SERVICE_UNAVAILABLE","cursor":"01m"}}]}`)
	if _, _, err := socket.Read(limited); websocket.CloseStatus(err) != websocket.StatusGoingAway {
		t.Errorf("the socket ended with %v, want close code 1001", err)
	}
	for _, path := range []string{"/readyz", "/demo/graphql?query={__typename}"} {
		if status, answer, err := get(to + path); err == nil {
			t.Errorf("GET %s during the shutdown returned status %d and %s, want a refused connection",
				path, status, answer)
		}
	}
	select {
	case err := <-ended:
		t.Errorf("run returned before the query was answered: %v", err)
	default:
	}
	close(chain.answer)
	if answer := <-answered; answer != `{"data":{"blockchain":{"account":{"info":{"balance":"0x7"}}}}}` {
		t.Errorf("the query in flight received %s, want the balance 0x7", answer)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func get(url string) (status int, body string, err error) {
	res, err := http.Get(strings.ReplaceAll(url, `"`, "%22"))
	if err != nil {
		return 0, "", err
	}
	answer, err := io.ReadAll(res.Body)
	return res.StatusCode, string(answer), errors.Join(err, res.Body.Close())
}

func TestDrainFitsIntoTerminationGracePeriod(t *testing.T) {
	text, err := os.ReadFile("deployment.yaml")
	if err != nil {
		t.Fatal(err)
	}
	seconds := func(pattern string) time.Duration {
		found := regexp.MustCompile(pattern).FindSubmatch(text)
		if found == nil {
			t.Fatalf("deployment.yaml does not contain %s", pattern)
		}
		n, _ := strconv.Atoi(string(found[1]))
		return time.Duration(n) * time.Second
	}
	grace := seconds(`terminationGracePeriodSeconds: (\d+)`)
	if usualLead+drain >= grace {
		t.Errorf("lead and drain take %v, but the pod is killed after %v", usualLead+drain, grace)
	}
	probes := seconds(`periodSeconds: (\d+)`) * seconds(`failureThreshold: (\d+)`) / time.Second
	if probes >= usualLead {
		t.Errorf("the readiness probe notices after %v, want less than the lead of %v", probes, usualLead)
	}
}
