package chain_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	client "github.com/chaingql/chaingql/examples/clients/go"
)

// These are codes of SDK errors after which the SDK reconnects.
const (
	disconnected = 610
	initFailed   = 613
)

// A modelSDK behaves like ever-sdk 1.49.2 with its single socket. After a reconnect, it sends each start message again
// with the same variables. It passes errors to the subscriptions. It does not notice that a connection was closed
// unless it receives a connection_error.
type modelSDK struct {
	t       *testing.T
	address string
	events  atomic.Int64 // number of data messages
	done    context.Context

	mu         sync.Mutex
	conn       *websocket.Conn // nil until the ack
	operations map[int]*modelOperation
}

type modelOperation struct {
	payload json.RawMessage
	on      func(data json.RawMessage, err error)
}

// newModelSDK returns a modelSDK. Before each connection, it calls before with the number of the connection, counted
// from 0.
func newModelSDK(t *testing.T, address string, before func(connection int)) *modelSDK {
	ctx, cancel := context.WithCancel(t.Context())
	m := &modelSDK{t: t, address: address, done: ctx, operations: map[int]*modelOperation{}}
	var running sync.WaitGroup
	t.Cleanup(func() { cancel(); running.Wait() })
	running.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			before(n)
			m.connect()
			select {
			case <-time.After(10 * time.Millisecond): // the SDK waits for 0, 0.5, 1, 2 s and so on
			case <-ctx.Done():
			}
		}
	})
	return m
}

// connect opens a connection and returns when it has ended.
func (m *modelSDK) connect() {
	conn, _, err := websocket.Dial(m.done, "ws://"+m.address+"/shop/graphql",
		&websocket.DialOptions{Subprotocols: []string{"graphql-ws"}})
	if err != nil {
		m.fail(initFailed, err.Error())
		return
	}
	defer conn.CloseNow()
	conn.SetReadLimit(1 << 20)
	m.send(conn, `{"type":"connection_init","payload":{"accessKey":"s3cret"}}`)
	defer func() {
		m.mu.Lock()
		m.conn = nil
		m.mu.Unlock()
	}()
	for {
		_, frame, err := conn.Read(m.done)
		if m.done.Err() != nil {
			return
		}
		if websocket.CloseStatus(err) != -1 {
			m.t.Errorf("the service closed the connection without connection_error, which the SDK would not notice: %v",
				err)
			<-m.done.Done()
			return
		}
		if err != nil {
			m.fail(disconnected, err.Error())
			return
		}
		if !m.receive(conn, frame) {
			m.send(conn, `{"type":"connection_terminate"}`)
			return
		}
	}
}

// receive handles a message and reports whether the connection continues.
func (m *modelSDK) receive(conn *websocket.Conn, frame []byte) bool {
	var message struct {
		ID      string
		Type    string
		Payload struct {
			Data    json.RawMessage
			Message string
		}
	}
	if json.Unmarshal(frame, &message) != nil {
		return true
	}
	id, _ := strconv.Atoi(message.ID)
	m.mu.Lock()
	op := m.operations[id]
	switch message.Type {
	case "connection_ack":
		m.conn = conn
		for id, op := range m.operations {
			m.start(id, op)
		}
	case "error", "complete":
		delete(m.operations, id)
	}
	m.mu.Unlock()
	switch {
	case message.Type == "connection_error":
		m.fail(disconnected, message.Payload.Message)
		return false
	case message.Type == "data" && op != nil:
		m.events.Add(1)
		op.on(message.Payload.Data, nil)
	case message.Type == "error" && op != nil:
		op.on(nil, &client.SDKError{Code: client.GraphQLError, Message: message.Payload.Message})
	}
	return true
}

// fail passes an error to all subscriptions without ending them.
func (m *modelSDK) fail(code int, text string) {
	m.mu.Lock()
	var all []*modelOperation
	for _, op := range m.operations {
		all = append(all, op)
	}
	m.mu.Unlock()
	for _, op := range all {
		op.on(nil, &client.SDKError{Code: code, Message: text})
	}
}

// start sends the start message of op. The caller must hold m.mu.
func (m *modelSDK) start(id int, op *modelOperation) {
	m.send(m.conn, fmt.Sprintf(`{"id":"%d","type":"start","payload":%s}`, id, op.payload))
}

func (m *modelSDK) send(conn *websocket.Conn, frame string) {
	_ = conn.Write(m.done, websocket.MessageText, []byte(frame)) // the reader notices a lost connection
}

func (m *modelSDK) Subscribe(
	document string, variables map[string]any, on func(json.RawMessage, error),
) (func(), error) {
	payload, err := json.Marshal(map[string]any{"query": document, "variables": variables})
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	id, op := len(m.operations)+1, &modelOperation{payload, on}
	m.operations[id] = op
	if m.conn != nil {
		m.start(id, op)
	}
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.operations, id)
		if m.conn != nil {
			m.send(m.conn, fmt.Sprintf(`{"id":"%d","type":"stop"}`, id))
		}
	}, nil
}

func (m *modelSDK) Query(ctx context.Context, document string, variables map[string]any) (json.RawMessage, error) {
	body, err := json.Marshal(map[string]any{"query": document, "variables": variables})
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, "POST", "http://"+m.address+"/shop/graphql", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.SetBasicAuth("", "s3cret")
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	var response struct {
		Data   json.RawMessage
		Errors []struct{ Message string }
	}
	if err == nil {
		err = json.Unmarshal(answer, &response)
	}
	switch {
	case err != nil:
	case res.StatusCode != http.StatusOK:
		err = errors.New(res.Status)
	case len(response.Errors) > 0:
		err = &client.SDKError{Code: client.GraphQLError, Message: response.Errors[0].Message}
	}
	return response.Data, err
}
