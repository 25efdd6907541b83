package attack

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// A target is the server under attack as one client sees it.
type target struct {
	addr    string
	timeout time.Duration // maximum lifetime of a connection
	recent  bool          // honest clients query only the last block
	server  *child        // for attacks that measure the server
}

const path = "/open/graphql"

// asJSON encodes v as JSON without HTML escaping.
func asJSON(v any) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err) // values of this package can be encoded
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// request returns the bytes of an HTTP request. Each element of headers is a line that replaces the
// default header with the same name. A line "Name:" without a value removes the default header.
func request(method, path, body string, headers ...string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\n", method, path)
	usual := []string{"Host: attacked.example", "Connection: close", "Accept: application/graphql-response+json"}
	if method == "POST" || method == "QUERY" {
		usual = append(usual, "Content-Type: application/json", fmt.Sprintf("Content-Length: %d", len(body)))
	}
	for _, line := range usual {
		name, _, _ := strings.Cut(line, ":")
		replaced := false
		for _, h := range headers {
			replaced = replaced || strings.HasPrefix(strings.ToLower(h), strings.ToLower(name)+":")
		}
		if !replaced {
			b.WriteString(line + "\r\n")
		}
	}
	for _, h := range headers {
		if !strings.HasSuffix(h, ":") {
			b.WriteString(h + "\r\n")
		}
	}
	b.WriteString("\r\n" + body)
	return b.Bytes()
}

func (s *target) post(body string, headers ...string) (outcome, error) {
	return s.send(request("POST", path, body, headers...))
}

// postThen posts a body, calls the function then with the connection, and reads the response.
func (s *target) postThen(body string, then func(net.Conn)) (outcome, error) {
	c, err := s.dial()
	if err != nil {
		return outcome{}, err
	}
	defer c.Close()
	if _, err := c.Write(request("POST", path, body)); err != nil {
		return outcome{}, err
	}
	then(c)
	return readPostResponse(c)
}

func (s *target) get(path string, headers ...string) (outcome, error) {
	return s.send(request("GET", path, "", headers...))
}

// many posts n bodies on one connection. All outcomes must have the same class. many returns the
// last outcome.
func (s *target) many(n int, text func(i int) string) (last outcome, err error) {
	c, err := s.dial()
	if err != nil {
		return last, err
	}
	defer c.Close()
	r := bufio.NewReader(c)
	for i := range n {
		if _, err := c.Write(request("POST", path, text(i), "Connection: keep-alive")); err != nil {
			return last, err
		}
		o, err := readResponse(r, http.MethodPost)
		if err != nil || i > 0 && o.class != last.class {
			return o, fmt.Errorf("request %d of %d: outcome %v, %w", i+1, n, o,
				cmp.Or(err, errors.New("its class differs from that of the previous request")))
		}
		last = o
	}
	return last, nil
}

// dial opens a connection, which the caller must close.
func (s *target) dial() (net.Conn, error) { return s.dialTo(s.addr) }

func (s *target) dialTo(addr string) (net.Conn, error) {
	c, err := net.DialTimeout("tcp", addr, s.timeout)
	if err != nil {
		return nil, err
	}
	_ = c.SetDeadline(time.Now().Add(s.timeout))
	return c, nil
}

// send writes text to a new connection and judges the response.
func (s *target) send(text []byte) (outcome, error) {
	c, err := s.dial()
	if err != nil {
		return outcome{}, err
	}
	defer c.Close()
	sent := make(chan struct{})
	go func() { // the response may arrive before the server has read all of text
		defer close(sent)
		_, _ = c.Write(text)
	}()
	method, _, _ := strings.Cut(string(text[:min(len(text), 8)]), " ")
	o, err := readResponse(bufio.NewReader(c), method)
	c.Close()
	<-sent
	return o, err
}

// raw sends text and returns the complete response without its Date header.
func (s *target) raw(text []byte) (string, error) {
	c, err := s.dial()
	if err != nil {
		return "", err
	}
	defer c.Close()
	if _, err := c.Write(text); err != nil {
		return "", err
	}
	content, err := io.ReadAll(io.LimitReader(c, maxResponse))
	return regexp.MustCompile(`(?m)^Date: .*$`).ReplaceAllString(string(content), ""), err
}

// readPostResponse reads the response to a POST and judges it.
func readPostResponse(c net.Conn) (outcome, error) {
	return readResponse(bufio.NewReader(c), http.MethodPost)
}

// maxResponse is a size in bytes that no valid response reaches.
const maxResponse = 8 << 20

// readResponse reads one response and judges it.
func readResponse(r *bufio.Reader, method string) (outcome, error) {
	resp, err := http.ReadResponse(r, &http.Request{Method: method})
	if err == nil && resp.StatusCode == http.StatusContinue {
		resp, err = http.ReadResponse(r, &http.Request{Method: method})
	}
	if err != nil {
		return ended(err)
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(io.LimitReader(resp.Body, maxResponse))
	if err != nil {
		return outcome{}, fmt.Errorf("response with status %d ended early: %w", resp.StatusCode, err)
	}
	return judge(resp, content)
}

// ended returns the outcome of a connection that ended without a response.
func ended(err error) (outcome, error) {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return outcome{class: "no answer"}, nil
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET),
		errors.Is(err, syscall.EPIPE):
		return outcome{class: "cut"}, nil
	}
	return outcome{}, err
}

// Queries of honest clients. ofBalance requests a balance and the last block. ofBlock requests only
// the last block, which needs no backend call.
const (
	ofBalance = `{"query":"{blockchain{account(address:\"` + richAddress +
		`\"){info{balance(format:DEC)}}blocks(last:1){edges{node{seq_no}}}}}"}`
	ofBlock = `{"query":"{blockchain{blocks(last:1){edges{node{seq_no}}}}}"}`
)

var (
	balanceResponse = regexp.MustCompile(`^\{"data":\{"blockchain":\{` +
		`"account":\{"info":\{"balance":"1234567890123456789"\}\},` +
		`"blocks":\{"edges":\[\{"node":\{"seq_no":\d+\}\}\]\}\}\}\}\s*$`)
	blockResponse = regexp.MustCompile(`^\{"data":\{"blockchain":\{` +
		`"blocks":\{"edges":\[\{"node":\{"seq_no":\d+\}\}\]\}\}\}\}\s*$`)
)

// healthy sends an honest query on a new connection. It returns an error unless the correct response
// arrives within a second.
func (s *target) healthy() (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w: %w", errUnhealthy, err)
		}
	}()
	const most = time.Second
	question, right := ofBalance, balanceResponse
	if s.recent {
		question, right = ofBlock, blockResponse
	}
	fresh := *s // with a shorter timeout
	fresh.timeout = most
	c, err := fresh.dial()
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.Write(request("POST", path, question)); err != nil {
		return err
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	if err == nil && (resp.StatusCode != http.StatusOK || !right.Match(content)) {
		err = fmt.Errorf("status %d, %.200q", resp.StatusCode, content)
	}
	return err
}
