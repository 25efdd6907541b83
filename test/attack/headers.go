package attack

import (
	"bufio"
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// headers returns requests with huge, duplicate or false headers.
func headers() []attack {
	post := func(name, want string, lines ...string) attack { return body(name, want, goodBody, lines...) }
	const unsupported = "415 UNSUPPORTED_MEDIA_TYPE"
	var all []attack
	for _, t := range []string{
		"text/plain", "text/plain; charset=utf-8", "application/x-www-form-urlencoded",
		"multipart/form-data; boundary=a", "application/graphql",
		"application/xml", "text/json",
		"application/json; charset=utf-16", "application/json; charset=latin1", "application/json; charset=utf-7",
		"application/json5",
		"application/jsonp", "application/json-patch+json",
		"application/*", "*/*", "json", "/", "application/json/x", "application/ json", "application/json;charset",
		"application/json; charset=utf-8; charset=utf-16", "application/json, text/plain",
		"text/plain, application/json", "application/json\x0b", "\"application/json\"", "application%2fjson",
		strings.Repeat("a", 5000) + "/json",
		"application/json;" + strings.Repeat("a", 5000), "",
	} {
		all = append(all, post("type "+short(t), unsupported+"|net/http 400", "Content-Type: "+t))
	}
	all = append(all,
		post("no type", unsupported, "Content-Type:"),
		post("two types", "200 answered|"+unsupported, "Content-Type: application/json", "Content-Type: text/plain"),
		post("two types, the wrong one first", unsupported, "Content-Type: text/plain",
			"Content-Type: application/json"),
		post("type in capitals", answered, "Content-Type: APPLICATION/JSON; CHARSET=UTF-8"),
	)
	for _, e := range []string{"gzip", "br", "deflate", "zstd", "gzip, gzip", "compress", "x",
		strings.Repeat("gzip,", 1000), "identity, gzip"} {
		all = append(all, post("encoding "+short(e), unsupported, "Content-Encoding: "+e))
	}
	all = append(all, body("gzip with the header for it", unsupported, zip(strings.Repeat(goodBody, 1000)),
		"Content-Encoding: gzip"))
	for _, a := range []string{
		"text/html", "image/*", "application/xml", "application/graphql", "x", ";", ";q=1", "application/json;q=0",
		"*/*;q=0",
		"text/event-stream;q=0", "application/*;q=0, text/*;q=0", "text/plain, text/html",
	} {
		all = append(all, post("accept "+short(a), "406 NOT_ACCEPTABLE", "Accept: "+a))
	}
	for _, a := range []string{
		"application/json;q=", "application/json;q=2", "application/json;q=NaN", "application/json;q=1e999", "*/*;q=-1",
		"application/json;q=0.0000000001", ",,,,*/*", strings.Repeat("text/html,", 5000) + "*/*",
		"*/*;" + strings.Repeat("a=b;", 5000), `*/*;a="` + strings.Repeat("\\", 5000) + `"`, "",
		"application/json\t;\tq=1",
		strings.Repeat("*/*,", 10_000), `application/json;a=",application/json"`,
		"application/json" + strings.Repeat(";a*0*=1'", 100), "application/json" + strings.Repeat(";a*0*=1'", 1000),
	} {
		all = append(all, post("odd accept "+short(a), "200 answered|406", "Accept: "+a))
	}
	for _, h := range []string{
		"Origin: https://evil.example", "Origin: null", "Origin: " + strings.Repeat("a", 10_000), "Origin: http://[::1",
		"Origin: %00",
		"Referer: https://evil.example", "Cookie: " + strings.Repeat("a=b; ", 5000),
		"X-Forwarded-For: " + strings.Repeat("1.2.3.4, ", 5000), "X-Forwarded-Host: evil.example",
		"X-HTTP-Method-Override: DELETE",
		"Range: bytes=0-0", "Range: bytes=" + strings.Repeat("0-0,", 5000),
		"If-None-Match: *", "If-Match: \"x\"", "Accept-Encoding: gzip",
		"Accept-Language: " + strings.Repeat("a,", 5000),
		"Connection: close, Content-Type, Authorization", "Keep-Alive: timeout=999999",
		"Upgrade: h2c", "Upgrade: websocket", "Upgrade: " + strings.Repeat("websocket,", 1000),
		"HTTP2-Settings: AAMAAABkAAQAAP__",
		"Max-Forwards: 0", "Via: " + strings.Repeat("1.1 a,", 1000), "TE: trailers", "Trailer: Content-Length",
		"Expect: 100-continue", "Last-Event-ID: " + strings.Repeat("9", 10_000), "Date: now",
		"Content-Range: bytes 0-1/2", "Content-Location: /",
		"Content-MD5: x", "Sec-Fetch-Site: cross-site", "Tonclient-Core-Version: " + strings.Repeat("9", 1000),
	} {
		all = append(all, post("harmless "+short(h), "200 answered", h))
	}
	all = append(all, grown("headers", "net/http 431", 64, 128<<10, func(name, want string, n int) attack {
		return plain(name, want+"|cut", func(s *target) (outcome, error) {
			return s.post(goodBody, times(n, "X-A#: aaaaaaaa\r\n")+"X: x")
		})
	})...)
	all = append(all, grown("bytes of one header", "net/http 431", 32<<10, 4<<20,
		func(name, want string, n int) attack {
			return plain(name, want+"|cut", func(s *target) (outcome, error) {
				return s.post(goodBody, "X-A: "+strings.Repeat("a", n))
			})
		})...)
	all = append(all, grown("bytes of a header's name", "net/http 431", 32<<10, 4<<20,
		func(name, want string, n int) attack {
			return plain(name, want+"|cut", func(s *target) (outcome, error) {
				return s.post(goodBody, strings.Repeat("a", n)+": a")
			})
		})...)
	return append(all, smuggling()...)
}

// smuggling returns HTTP requests that two servers might parse differently.
func smuggling() []attack {
	const host = "Host: a\r\n"
	head := "POST " + path + " HTTP/1.1\r\n" + host +
		"Content-Type: application/json\r\nAccept: application/graphql-response+json\r\n"
	chunk := fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(goodBody), goodBody)
	second := "GET /locked/graphql?query={info{version}} HTTP/1.1\r\n" + host + "\r\n"
	var all []attack
	for _, h := range []string{
		"Content-Length: 5\r\nContent-Length: 6", "Content-Length: 5, 6", "Content-Length: -1", "Content-Length: +27",
		"Content-Length: 0x1b",
		"Content-Length: 27a", "Content-Length: ２７", "Content-Length: 1e3",
		"Content-Length: 99999999999999999999", "Content-Length: \"27\"", "Transfer-Encoding: gzip",
		"Transfer-Encoding: gzip, chunked",
		"Transfer-Encoding: chunked, chunked", "Transfer-Encoding: xchunked",
		"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity", "Transfer-Encoding: identity",
		"Transfer-Encoding: chunked;a=b",
		"Transfer-Encoding: \"chunked\"", "Transfer-Encoding: \x0bchunked",
		"Transfer-Encoding : chunked", "Content-Length : 27", " Content-Length: 27",
		"X: a\r\n Content-Length: 27\r\n\tb", "X\x00: a", "X: a\x00b",
		"X: a\rb", "X", ": a", "\xff: a", "X y: a", "(X): a", "Host: b", "Host: a b", "Host: a/b",
	} {
		all = append(all, wire("head "+short(h), "net/http 4|net/http 501|400 BAD_REQUEST|answered|415|406|cut",
			head+h+"\r\n\r\n"+goodBody))
	}
	for _, b := range []string{
		chunk, "0\r\n\r\n" + second, "1\r\n{\r\n0\r\n\r\n", strings.Replace(chunk, "\r\n", "\n", -1), "g\r\n", "-1\r\n",
		"+1b\r\n" + goodBody,
		"0x1b\r\n" + goodBody, "\r\n", "1b;" + strings.Repeat("a", 5000) + "\r\n" + goodBody + "\r\n0\r\n\r\n",
		"1b\r\n" + goodBody + "XX0\r\n\r\n", "00000000000000000000001b\r\n" + goodBody + "\r\n0\r\n\r\n",
		strings.Repeat("1\r\na\r\n", 2000) + "0\r\n\r\n", "1b\r\n" + goodBody + "\r\n0\r\n" +
			strings.Repeat("X: a\r\n", 1000) + "\r\n",
		"1b\r\n" + goodBody + "\r\n0\r\nContent-Length: 5\r\nAuthorization: Basic x\r\n\r\n",
		"1b\r\n" + goodBody + "\r\n0\r\n" + strings.Repeat("X", 1<<20), "1b \r\n" + goodBody + "\r\n0\r\n\r\n",
	} {
		want := "400|answered|413|cut|net/http"
		all = append(all, wire("chunks "+short(b), want,
			head+"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"+b))
		all = append(all, wire("chunks with a length "+short(b), want,
			head+"Transfer-Encoding: chunked\r\nContent-Length: 27\r\nConnection: close\r\n\r\n"+b))
	}
	for _, line := range []string{
		"GET", "GET /", "GET / HTTP", "GET / HTTP/9.9", "GET / HTTP/2.0", "GET / HTTP/1.1.1", "GET  / HTTP/1.1",
		"GET / http/1.1",
		"GET\t/\tHTTP/1.1", "get / HTTP/1.1", "\x16\x03\x01\x02\x00", "PRI * HTTP/2.0", "SSH-2.0-x", "\x00\x00\x00",
		"POST \x00 HTTP/1.1",
		"GET http://[::1 HTTP/1.1", "GET //" + strings.Repeat("a", 2<<20) + " HTTP/1.1",
		strings.Repeat("A", 100_000) + " / HTTP/1.1",
		"CONNECT a:1 HTTP/1.1", "GET / HTTP/1.1\rX", "GET %zz HTTP/1.1", "GET * HTTP/1.1", "OPTIONS * HTTP/1.1",
	} {
		all = append(all, wire("line "+short(line), "net/http|cut|answered",
			line+"\r\n"+host+"Connection: close\r\n\r\n\r\n"))
	}
	return append(all,
		wire("HTTP/1.0 without a host", answered,
			fmt.Sprintf("POST %s HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", path,
				len(goodBody), goodBody)),
		wire("HTTP/1.1 without a host", "net/http 400", "GET "+path+"?query={info{version}} HTTP/1.1\r\n\r\n"),
		wire("HTTP/1.0 with chunks", "answered|net/http|400|415|cut",
			"POST "+path+" HTTP/1.0\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"+chunk),
		pipelined("a hundred requests at once", strings.Repeat(string(request("POST", path, goodBody,
			"Connection: keep-alive")), 100), 100),
		pipelined("a refused request between two others", string(request("POST", path, goodBody,
			"Connection: keep-alive"))+string(request("POST", path, "[]",
			"Connection: keep-alive"))+string(request("POST", path, goodBody)), 3),
		pipelined("a length that is too short", strings.Replace(string(request("POST", path, goodBody+"}",
			"Connection: keep-alive")), "Length: 28", "Length: 27", 1), 1),
		pipelined("GET with a body", string(request("GET", path+"?query={info{version}}", "",
			"Content-Length: 27"))+goodBody, 1),
		pipelined("GET with a body that is a request", string(request("GET", path+"?query={info{version}}", "",
			"Connection: keep-alive", fmt.Sprintf("Content-Length: %d", len(second))))+second, 1),
	)
}

// pipelined returns an attack that sends the requests in text without waiting for responses. The
// outcome is the first response. The attack reads at most max responses.
func pipelined(name, text string, max int) attack {
	return plain(name, "answered", func(s *target) (outcome, error) {
		c, err := s.dial()
		if err != nil {
			return outcome{}, err
		}
		defer c.Close()
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			_, _ = c.Write([]byte(text))
		}()
		defer func() { c.Close(); <-sent }()
		last, r := outcome{}, bufio.NewReader(c)
		for n := 0; ; n++ {
			if n == max {
				return last, nil
			}
			o, err := readResponse(r, http.MethodPost)
			switch {
			case err != nil:
				return o, err
			case n > max:
				return o, errors.New("more responses than requests")
			case o.class == "cut" || o.class == "no answer" || o.class == "net/http":
				return last, nil
			case last.class == "":
				last = o
			}
		}
	})
}
