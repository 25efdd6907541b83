package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/chaingql/chaingql/internal/testkit"
)

func TestMain(m *testing.M) {
	code := m.Run()
	http.DefaultClient.CloseIdleConnections()
	os.Exit(testkit.CheckLeaks(code, os.Stderr, 3*time.Second))
}

// started runs the program until the test ends and returns the address of the API.
func started(t *testing.T) (address string) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, listener, 20*time.Millisecond) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the program ended with %v", err)
		}
	})
	return listener.Addr().String() + "/demo/graphql"
}

func ask(t *testing.T, address, query string) string {
	t.Helper()
	body, err := json.Marshal(map[string]string{"query": query})
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.Post("http://"+address, "application/json", strings.NewReader(string(body)))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(answer)
}

func TestTransactionsAreServedWithBlocks(t *testing.T) {
	address := started(t)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	conn, _, err := websocket.Dial(ctx, "ws://"+address,
		&websocket.DialOptions{Subprotocols: []string{"graphql-transport-ws"}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseNow()
	say := func(frame string) {
		t.Helper()
		if err := conn.Write(ctx, websocket.MessageText, []byte(frame)); err != nil {
			t.Fatal(err)
		}
	}
	hear := func() (m struct {
		Type    string
		Payload struct {
			Data struct {
				Transactions struct {
					ID, Block, Amount string
					To                struct{ Address string }
				}
			}
		}
	}) {
		t.Helper()
		_, frame, err := conn.Read(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(frame, &m); err != nil {
			t.Fatalf("decoding %s failed: %v", frame, err)
		}
		return m
	}
	say(`{"type":"connection_init"}`)
	if m := hear(); m.Type != "connection_ack" {
		t.Fatalf("received %+v, want connection_ack", m)
	}
	say(`{"id":"1","type":"subscribe","payload":{"query":"subscription{transactions(account:\"` + wallet(1) +
		`\"){id block amount to{address}}}"}}`)
	last := 0
	for range 6 {
		m := hear()
		tx, n := m.Payload.Data.Transactions, 0
		if _, err := fmt.Sscanf(tx.ID, "tx%d", &n); m.Type != "next" || err != nil || n <= last || tx.Block == "" ||
			tx.Amount != fmt.Sprint(int64(n/2)*1_500_000_000) {
			t.Errorf("received %+v after transaction %d, want the next transaction", m, last)
		}
		last = n
		answer := ask(t, address, `{blockchain{blocks(after:"",last:null,first:50){edges{node{chain_order}}}}}`)
		if !strings.Contains(answer, `"`+tx.Block+`"`) && n < 90 {
			t.Errorf("the page of blocks %s does not contain block %q of the transaction", answer, tx.Block)
		}
	}

	var got struct {
		Data struct {
			Transactions []struct {
				ID, Amount string
				From       struct {
					Transactions []struct{ ID string }
				}
			}
		}
		Errors []any
	}
	answer := ask(t, address, `{transactions(first:3){id amount(unit:COIN) from{transactions(first:1){id}}}}`)
	if err := json.Unmarshal([]byte(answer), &got); err != nil {
		t.Fatal(err)
	}
	if tx := got.Data.Transactions; len(tx) != 3 || !strings.Contains(tx[0].Amount, ".") ||
		len(tx[2].From.Transactions) != 1 {
		t.Errorf("the response to a query for three transactions is %s", answer)
	}
	answer = ask(t, address, `{transactions(first:50){from{transactions(first:1){id}} to{transactions(first:1){id}}}}`)
	if !strings.Contains(answer, "costs 101 calls of the backend, more than the limit of 50") {
		t.Errorf("the response to nested lists is %s, want the error of a limit", answer)
	}
}
