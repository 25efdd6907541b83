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

// A site is the server under attack as strangers know it.
type site struct {
	addr     string
	patience time.Duration // with an answer
	recent   bool          // that honest clients ask for no more than recent blocks
	server   *child        // for attacks that look into it
	honest   time.Duration // in which an honest query must be answered; 0 is a second
}

const path = "/open/graphql"

// asJSON is a value's JSON, without the escapes that encoding/json makes for HTML.
func asJSON(v any) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err) // of what this package says itself
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// request writes down an HTTP request. Headers replace the usual ones of their
// name; one that is "Name:" alone takes it away.
func request(method, path, body string, headers ...string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\n", method, path)
	usual := []string{"Host: attacked.example", "Connection: close", "Accept: application/graphql-response+json"}
	if method == "POST" {
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

func (s *site) post(body string, headers ...string) (outcome, error) {
	return s.send(request("POST", path, body, headers...))
}

// ask posts a body, then does something to the connection and reads the answer.
func (s *site) ask(body string, then func(net.Conn)) (outcome, error) {
	c, err := s.dial()
	if err != nil {
		return outcome{}, err
	}
	defer c.Close()
	if _, err := c.Write(request("POST", path, body)); err != nil {
		return outcome{}, err
	}
	then(c)
	return answerOf(c)
}

func (s *site) get(path string, headers ...string) (outcome, error) {
	return s.send(request("GET", path, "", headers...))
}

// many posts bodies on one connection; all must come to the same class, of which
// the last is returned.
func (s *site) many(n int, text func(i int) string) (last outcome, err error) {
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
		o, err := answer(r, http.MethodPost)
		if err != nil || i > 0 && o.class != last.class {
			return o, fmt.Errorf("number %d of %d came to %v, %w", i, n, o, cmp.Or(err, errors.New("unlike the others")))
		}
		last = o
	}
	return last, nil
}

// dial opens a connection that its caller closes.
func (s *site) dial() (net.Conn, error) { return s.dialTo(s.addr) }

func (s *site) dialTo(addr string) (net.Conn, error) {
	c, err := net.DialTimeout("tcp", addr, s.patience)
	if err != nil {
		return nil, err
	}
	_ = c.SetDeadline(time.Now().Add(s.patience))
	return c, nil
}

// send sends bytes on a connection of their own and judges what is answered.
func (s *site) send(text []byte) (outcome, error) {
	c, err := s.dial()
	if err != nil {
		return outcome{}, err
	}
	defer c.Close()
	sent := make(chan struct{})
	go func() { // the answer may come before the whole of it is taken
		defer close(sent)
		_, _ = c.Write(text)
	}()
	method, _, _ := strings.Cut(string(text[:min(len(text), 8)]), " ")
	o, err := answer(bufio.NewReader(c), method)
	c.Close()
	<-sent
	return o, err
}

// raw is all that is answered, without its date.
func (s *site) raw(text []byte) (string, error) {
	c, err := s.dial()
	if err != nil {
		return "", err
	}
	defer c.Close()
	if _, err := c.Write(text); err != nil {
		return "", err
	}
	content, err := io.ReadAll(io.LimitReader(c, maxAnswer))
	return regexp.MustCompile(`(?m)^Date: .*$`).ReplaceAllString(string(content), ""), err
}

// answerOf reads the answer to a POST.
func answerOf(c net.Conn) (outcome, error) { return answer(bufio.NewReader(c), http.MethodPost) }

// maxAnswer is more than any answer may have.
const maxAnswer = 8 << 20

// answer reads one answer and judges it.
func answer(r *bufio.Reader, method string) (outcome, error) {
	resp, err := http.ReadResponse(r, &http.Request{Method: method})
	if err == nil && resp.StatusCode == http.StatusContinue {
		resp, err = http.ReadResponse(r, &http.Request{Method: method})
	}
	if err != nil {
		return ended(err)
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return outcome{}, fmt.Errorf("answer of status %d broke off: %w", resp.StatusCode, err)
	}
	return judge(resp, content)
}

// ended is the outcome of a connection that ended without an answer.
func ended(err error) (outcome, error) {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return outcome{class: "no answer"}, nil
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return outcome{class: "cut"}, nil
	}
	return outcome{}, err
}

// An errorAnswer is a GraphQL error as every answer must tell it.
type errorAnswer struct {
	Message    string
	Extensions struct{ Code *string }
}

// leaks is what no answer may tell, of the program or as advice.
var leaks = regexp.MustCompile(`\.go:\d|goroutine |panic|runtime error|[Dd]id you mean|memchain|gqlparser`)

// judge says what an answer is, and what every answer must be: no failure of
// the server's, a GraphQL error in JSON with a code, short.
func judge(resp *http.Response, content []byte) (outcome, error) {
	status := fmt.Sprint(resp.StatusCode)
	media := resp.Header.Get("Content-Type")
	at := fmt.Sprintf("%s, %s: %.200q", status, media, content)
	switch {
	case resp.StatusCode == http.StatusNotImplemented || resp.StatusCode == http.StatusHTTPVersionNotSupported:
		return outcome{"net/http", status}, nil
	case resp.StatusCode >= 500 && resp.StatusCode != http.StatusServiceUnavailable:
		return outcome{}, fmt.Errorf("a failure of the server: %s", at)
	case strings.HasPrefix(media, "text/plain"), strings.HasPrefix(media, "text/html"),
		media == "" && resp.StatusCode >= 300 && len(content) == 0: // of net/http or its mux
		return outcome{"net/http", status + " " + resp.Header.Get("Location")}, nil
	case len(content) == 0:
		return outcome{"answered", status + " empty"}, nil
	case strings.HasPrefix(media, "text/event-stream"):
		return judgeEvents(content)
	case !strings.HasPrefix(media, "application/json") && !strings.HasPrefix(media, "application/graphql-response+json"):
		return outcome{}, fmt.Errorf("neither JSON nor events: %s", at)
	}
	for status, header := range map[int]string{401: "WWW-Authenticate", 405: "Allow", 429: "Retry-After", 503: "Retry-After"} {
		if resp.StatusCode == status && resp.Header.Get(header) == "" {
			return outcome{}, fmt.Errorf("no %s: %s", header, at)
		}
	}
	o, err := judgeJSON(content)
	if err == nil && resp.StatusCode >= 400 && o.class == "answered" {
		err = fmt.Errorf("refused without an error: %s", at)
	}
	o.text = status + " " + o.text
	return o, err
}

// judgeJSON judges one GraphQL answer.
func judgeJSON(content []byte) (outcome, error) {
	var keys map[string]json.RawMessage
	var errs []errorAnswer
	if err := json.Unmarshal(content, &keys); err != nil {
		return outcome{}, fmt.Errorf("not a JSON object: %w: %.200q", err, content)
	}
	if keys["errors"] == nil {
		if keys["data"] == nil {
			return outcome{}, fmt.Errorf("neither data nor errors: %.200q", content)
		}
		return outcome{class: "answered"}, nil
	}
	if err := json.Unmarshal(keys["errors"], &errs); err != nil || len(errs) == 0 {
		return outcome{}, fmt.Errorf("errors are none: %v: %.200q", err, content)
	}
	o, err := judgeErrors(errs)
	switch {
	case err != nil:
		return o, fmt.Errorf("%w: %.300q", err, content)
	case keys["data"] == nil && (len(errs) > 10 || len(content) > 64<<10):
		return o, fmt.Errorf("refused with %d errors in %d bytes", len(errs), len(content))
	case len(keys["errors"]) > 70<<10:
		return o, fmt.Errorf("%d bytes of field errors", len(keys["errors"]))
	}
	return o, nil
}

// judgeErrors is the outcome that errors tell.
func judgeErrors(errs []errorAnswer) (outcome, error) {
	for _, e := range errs {
		switch {
		case e.Message == "" || e.Extensions.Code == nil || *e.Extensions.Code == "":
			return outcome{}, errors.New("an error without message or code")
		case len(e.Message) > 300:
			return outcome{}, fmt.Errorf("a message of %d bytes", len(e.Message))
		case *e.Extensions.Code == "INTERNAL_SERVER_ERROR":
			return outcome{}, errors.New("an internal error")
		case leaks.MatchString(e.Message):
			return outcome{}, fmt.Errorf("an answer that tells too much: %q", e.Message)
		}
	}
	return outcome{*errs[0].Extensions.Code, errs[0].Message}, nil
}

// judgeEvents judges a whole event stream by its first event.
func judgeEvents(content []byte) (outcome, error) {
	for line := range strings.Lines(string(content)) {
		if data, ok := strings.CutPrefix(line, "data:"); ok && strings.TrimSpace(data) != "" {
			o, err := judgeJSON([]byte(strings.TrimSpace(data)))
			o.text = "events " + o.text
			return o, err
		}
	}
	return outcome{"answered", "no events"}, nil
}

// What honest clients ask for, and are answered: a balance and the last block,
// or that block alone, which needs no call of the backend.
const (
	ofBalance = `{"query":"{blockchain{account(address:\"` + richAddress + `\"){info{balance(format:DEC)}}blocks(last:1){edges{node{seq_no}}}}}"}`
	ofBlock   = `{"query":"{blockchain{blocks(last:1){edges{node{seq_no}}}}}"}`
)

var (
	balanceAnswer = regexp.MustCompile(`^\{"data":\{"blockchain":\{"account":\{"info":\{"balance":"1234567890123456789"\}\},"blocks":\{"edges":\[\{"node":\{"seq_no":\d+\}\}\]\}\}\}\}\s*$`)
	blockAnswer   = regexp.MustCompile(`^\{"data":\{"blockchain":\{"blocks":\{"edges":\[\{"node":\{"seq_no":\d+\}\}\]\}\}\}\}\s*$`)
)

// healthy asks an honest question on a fresh connection, which must be answered
// rightly within a second, or the family's time.
func (s *site) healthy() (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w: %w", errUnwell, err)
		}
	}()
	most := cmp.Or(s.honest, time.Second)
	question, right := ofBalance, balanceAnswer
	if s.recent {
		question, right = ofBlock, blockAnswer
	}
	fresh := *s
	fresh.patience = most
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
