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
			return o, fmt.Errorf("request %d of %d: outcome %v, %w", i, n, o, cmp.Or(err, errors.New("its class differs from that of the previous request")))
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
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return outcome{class: "cut"}, nil
	}
	return outcome{}, err
}

// A responseError holds the fields that every GraphQL error must have.
type responseError struct {
	Message    string
	Extensions struct{ Code *string }
}

// internals matches details of the program, such as source lines, and "Did you mean" suggestions. No
// error message may contain either.
var internals = regexp.MustCompile(`\.go:\d|goroutine |panic|runtime error|[Dd]id you mean|memchain|gqlparser`)

// judge returns the outcome of a response and checks the rules that every response must follow: it is
// not a server error other than 503, and each error in it is a short GraphQL error with a code.
func judge(resp *http.Response, content []byte) (outcome, error) {
	status := fmt.Sprint(resp.StatusCode)
	media := resp.Header.Get("Content-Type")
	at := fmt.Sprintf("%s, %s: %.200q", status, media, content)
	switch {
	case resp.StatusCode == http.StatusNotImplemented || resp.StatusCode == http.StatusHTTPVersionNotSupported:
		return outcome{"net/http", status}, nil
	case resp.StatusCode >= 500 && resp.StatusCode != http.StatusServiceUnavailable:
		return outcome{}, fmt.Errorf("server error: %s", at)
	case strings.HasPrefix(media, "text/plain"), strings.HasPrefix(media, "text/html"),
		media == "" && resp.StatusCode >= 300 && len(content) == 0: // from net/http or its mux
		return outcome{"net/http", status + " " + resp.Header.Get("Location")}, nil
	case len(content) == 0:
		return outcome{"answered", status + " empty"}, nil
	case strings.HasPrefix(media, "text/event-stream"), strings.HasPrefix(media, "multipart/mixed"):
		return judgeEvents(content)
	case !strings.HasPrefix(media, "application/json") && !strings.HasPrefix(media, "application/graphql-response+json"):
		return outcome{}, fmt.Errorf("response is neither JSON nor an event stream: %s", at)
	}
	for status, header := range map[int]string{401: "WWW-Authenticate", 405: "Allow", 429: "Retry-After", 503: "Retry-After"} {
		if resp.StatusCode == status && resp.Header.Get(header) == "" {
			return outcome{}, fmt.Errorf("response has no %s header: %s", header, at)
		}
	}
	o, err := judgeJSON(content)
	if err == nil && resp.StatusCode >= 400 && o.class == "answered" {
		err = fmt.Errorf("response has an error status but no errors: %s", at)
	}
	o.text = status + " " + o.text
	return o, err
}

// judgeJSON judges one GraphQL response.
func judgeJSON(content []byte) (outcome, error) {
	var keys map[string]json.RawMessage
	var errs []responseError
	if err := json.Unmarshal(content, &keys); err != nil {
		return outcome{}, fmt.Errorf("response is not a JSON object: %w: %.200q", err, content)
	}
	if keys["errors"] == nil {
		if keys["data"] == nil {
			return outcome{}, fmt.Errorf("response has neither data nor errors: %.200q", content)
		}
		return outcome{class: "answered"}, nil
	}
	if err := json.Unmarshal(keys["errors"], &errs); err != nil || len(errs) == 0 {
		return outcome{}, fmt.Errorf("the value of \"errors\" is not a list of errors: %v: %.200q", err, content)
	}
	o, err := judgeErrors(errs)
	switch {
	case err != nil:
		return o, fmt.Errorf("%w: %.300q", err, content)
	case keys["data"] == nil && (len(errs) > 10 || len(content) > 64<<10):
		return o, fmt.Errorf("error response has %d errors and %d bytes, want at most 10 and 64 KiB", len(errs), len(content))
	case len(keys["errors"]) > 70<<10:
		return o, fmt.Errorf("list of field errors has %d bytes, want at most 70 KiB", len(keys["errors"]))
	}
	return o, nil
}

// judgeErrors checks all errors of a response and returns the outcome that the first error describes.
func judgeErrors(errs []responseError) (outcome, error) {
	for _, e := range errs {
		switch {
		case e.Message == "" || e.Extensions.Code == nil || *e.Extensions.Code == "":
			return outcome{}, errors.New("an error has no message or no code")
		case len(e.Message) > 300:
			return outcome{}, fmt.Errorf("an error message has %d bytes, want at most 300", len(e.Message))
		case *e.Extensions.Code == "INTERNAL_SERVER_ERROR":
			return outcome{}, errors.New("an error has the code INTERNAL_SERVER_ERROR")
		case internals.MatchString(e.Message):
			return outcome{}, fmt.Errorf("an error message reveals internals: %q", e.Message)
		}
	}
	return outcome{*errs[0].Extensions.Code, errs[0].Message}, nil
}

// eventData returns the response in one line of an event stream or of a multipart stream, or "".
func eventData(line string) string {
	line = strings.TrimSpace(line)
	if data, ok := strings.CutPrefix(line, "data:"); ok {
		return strings.TrimSpace(data)
	}
	if errs, ok := strings.CutPrefix(line, `{"payload":null,`); ok {
		return "{" + errs
	}
	data, _ := strings.CutPrefix(line, `{"payload":`)
	if data == line {
		return ""
	}
	return strings.TrimSuffix(data, "}")
}

// judgeEvents returns the outcome of the first event of a stream.
func judgeEvents(content []byte) (outcome, error) {
	for line := range strings.Lines(string(content)) {
		if data := eventData(line); data != "" {
			o, err := judgeJSON([]byte(data))
			o.text = "events " + o.text
			return o, err
		}
	}
	return outcome{"answered", "no events"}, nil
}

// Queries of honest clients. ofBalance requests a balance and the last block. ofBlock requests only
// the last block, which needs no backend call.
const (
	ofBalance = `{"query":"{blockchain{account(address:\"` + richAddress + `\"){info{balance(format:DEC)}}blocks(last:1){edges{node{seq_no}}}}}"}`
	ofBlock   = `{"query":"{blockchain{blocks(last:1){edges{node{seq_no}}}}}"}`
)

var (
	balanceResponse = regexp.MustCompile(`^\{"data":\{"blockchain":\{"account":\{"info":\{"balance":"1234567890123456789"\}\},"blocks":\{"edges":\[\{"node":\{"seq_no":\d+\}\}\]\}\}\}\}\s*$`)
	blockResponse   = regexp.MustCompile(`^\{"data":\{"blockchain":\{"blocks":\{"edges":\[\{"node":\{"seq_no":\d+\}\}\]\}\}\}\}\s*$`)
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
