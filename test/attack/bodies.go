package attack

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"strings"
	"unicode/utf16"
)

const goodBody = `{"query":"{info{version}}"}`

// bodies returns requests with bodies that are invalid JSON or do not match the headers.
func bodies() []attack {
	var all []attack
	for _, text := range []string{
		"", " ", "\n\n", "null", "true", "1", `"{info{version}}"`, "[]", "[" + goodBody + "]",
		"[" + goodBody + "," + goodBody + "]", "[[]]", "{",
		"}", "{}", `{"query"`, `{"query":`, `{"query":}`,
		`{"query":"{info{version}}"`, goodBody + "}", goodBody + goodBody, goodBody + "\n" + goodBody, goodBody + ",",
		goodBody + "x", goodBody + "\x00", "\x00" + goodBody,
		"\ufeff" + goodBody, `{query:"{info{version}}"}`, `{'query':'{info{version}}'}`, `{"query":"{info{version}}",}`,
		`{,"query":"{info{version}}"}`, `{"query":"{info{version}}"/*a*/}`,
		`{"query":"{info{version}}"}//a`, `{"query":NaN}`, `{"query":"a","variables":{"a":NaN}}`,
		`{"query":"a","variables":{"a":Infinity}}`,
		`{"query":"a","variables":{"a":-Infinity}}`,
		`{"query":"a","variables":{"a":undefined}}`, `{"query":"a","variables":{"a":01}}`,
		`{"query":"a","variables":{"a":+1}}`,
		`{"query":"a","variables":{"a":.5}}`, `{"query":"a","variables":{"a":1.}}`,
		`{"query":"a","variables":{"a":1e}}`, `{"query":"a","variables":{"a":0x1}}`,
		`{"query":"a","variables":{"a":--1}}`,
		`{"query":"a","variables":{"a":-}}`, `{"query":"a","variables":{"a":True}}`,
		`{"query":"a","variables":{"a":nul}}`, `{"query":"a","variables":{"a":"\x"}}`,
		`{"query":"a","variables":{"a":"\u12"}}`,
		`{"query":"a","variables":{"a":"` + "\n" + `"}}`, `{"query":"a","variables":{"a":"` + "\x01" + `"}}`,
		`{"query":"a","variables":{"a" 1}}`, `{"query":"a","variables":{"a"::1}}`, `{"query":"a","variables":{1:1}}`,
		`{"query":"a","variables":{null:1}}`, `{"query":"a" "variables":{}}`, `{"query":"a";"variables":{}}`,
		`{"query":"a","variables":{]}`, `{"query":"a","variables":[}`,
		`{"query":"{info{version}}","variables":{}}` + strings.Repeat("]", 1000),
		"query={info{version}}", "--a\r\nContent-Disposition: form-data; name=\"operations\"\r\n\r\n" + goodBody +
			"\r\n--a--",
		"<query>{info{version}}</query>", "{info{version}}", "query: '{info{version}}'",
		"{\"query\":\"\xff\"}", "{\"query\":\"\xc0\xaf\"}", "{\"query\":\"\xed\xa0\x80\"}",
		"{\"query\":\"\xf5\x80\x80\x80\"}",
		"{\"\xff\":1,\"query\":\"{info{version}}\"}", "{\"query\":\"{info{version}}\xe2\x82\"}",
		zip(goodBody), utf16Of(goodBody, false), utf16Of(goodBody, true), "\xfe\xff" + utf16Of(goodBody, true),
		"\x84\xa5query\xa1a",
		"\xa1\x65query\x61a", strings.Repeat("\x00", 1000), strings.Repeat("\xff", 1000),
	} {
		all = append(all, body(short(text), badRequest, text))
	}
	// Duplicate keys, some of them with escapes.
	for _, text := range []string{
		`{"query":"{info{version}}","query":"{info{time}}"}`, `{"query":"{info{version}}","qu\u0065ry":"{info{time}}"}`,
		`{"query":null,"query":"{info{version}}"}`,
		`{"query":"{info{version}}","variables":{},"variables":null}`,
		`{"query":"{info{version}}","variables":{"a":1,"a":2}}`,
		`{"query":"{info{version}}","variables":{"a":1,"\u0061":2}}`,
		`{"query":"{info{version}}","operationName":"A","operationName":"B"}`,
		`{"query":"{info{version}}","extensions":{},"extensions":{}}`,
		`{"query":"{info{version}}","x":1,"x":2}`,
		`{"query":"{info{version}}","variables":{"a":{"b":1,"b":1}}}`,
		`{"query":"{info{version}}","variables":{"":1,"":2}}`,
		`{"query":"{info{version}}","extensions":{"persistedQuery":{"version":1,"version":1}}}`,
	} {
		all = append(all, body("duplicate key "+short(text), badRequest, text))
	}
	values := map[string]string{"a number": "1", "a boolean": "true", "an array": "[]", "an object": "{}",
		"a string": `"x"`, "a huge number": "1e400", "an array of a document": `["{info{version}}"]`}
	for key, right := range map[string]string{"query": "a string", "operationName": "a string",
		"variables": "an object", "extensions": "an object"} {
		for name, value := range values {
			if name == right {
				continue
			}
			others := `"query":"{info{version}}",`
			if key == "query" {
				others = ""
			}
			all = append(all, body(key+" is "+name, badRequest, "{"+others+`"`+key+`":`+value+"}"))
		}
	}
	for _, key := range []string{
		"QUERY", "Query", "query ", " query", "query\\u0000", "\\u00a0query", "__proto__", "mutation", "q", "document",
		"id", "queryId", "doc_id",
		"sha256Hash",
	} {
		all = append(all, body("query called "+key, badRequest, `{"`+key+`":"{info{version}}"}`))
	}
	return append(all, sizes()...)
}

// sizes returns requests with large bodies or wrong Content-Length values.
func sizes() []attack {
	all := grown("bytes of space", "413 LIMIT_EXCEEDED limit of 131072 bytes", 64<<10, 8<<20,
		func(name, want string, n int) attack {
			return attack{name: name, want: want, within: usual, body: func() string {
				return goodBody + strings.Repeat(" ", n)
			}}
		})
	all = append(all, grown("unknown keys", "413 LIMIT_EXCEEDED", 1<<10, 16<<10, func(name, want string, n int) attack {
		return body(name, want+"|400", `{"query":"{info{version}}",`+strings.TrimSuffix(times(n, `"k#":1,`), ",")+"}")
	})...)
	all = append(all, grown("levels of arrays in an unknown key", "LIMIT_EXCEEDED", 8, 1<<20,
		func(name, want string, n int) attack {
			return attack{name: name, want: want, within: usual, body: func() string {
				return `{"query":"{info{version}}","x":` + strings.Repeat("[", n) + strings.Repeat("]", n) + "}"
			}}
		})...)
	all = append(all, grown("batch", badRequest+"|413", 2, 1024, func(name, want string, n int) attack {
		return body(name, badRequest+"|413", "["+strings.TrimSuffix(strings.Repeat(goodBody+",", n), ",")+"]")
	})...)
	stream := func(name, want string, total int64, head ...string) attack {
		return plain(name, want, func(s *target) (outcome, error) {
			c, err := s.dial()
			if err != nil {
				return outcome{}, err
			}
			sent := make(chan struct{})
			go func() {
				defer close(sent)
				_, _ = c.Write(request("POST", path, "", head...))
				_, _ = io.CopyN(c, spaces{}, total)
			}()
			defer func() { c.Close(); <-sent }()
			return readPostResponse(c)
		})
	}
	large := int64(100 << 20)
	all = append(all,
		stream("100 MB with a Content-Length", "413 LIMIT_EXCEEDED", large, fmt.Sprintf("Content-Length: %d", large)),
		stream("100 MB in one chunk", "413 LIMIT_EXCEEDED", large, "Content-Length:",
			"Transfer-Encoding: chunked\r\n\r\n6400000"),
		stream("100 MB to another media type", "415 UNSUPPORTED_MEDIA_TYPE", large,
			fmt.Sprintf("Content-Length: %d", large), "Content-Type: text/plain"),
		stream("100 MB to a wrong project", "401 UNAUTHENTICATED", large, fmt.Sprintf("Content-Length: %d", large),
			"Authorization: Basic bm86bm8="),
		stream("100 MB with an unsupported Accept", "406 NOT_ACCEPTABLE", large,
			fmt.Sprintf("Content-Length: %d", large), "Accept: image/png"),
		stream("100 MB after Expect", "413 LIMIT_EXCEEDED|417", large, fmt.Sprintf("Content-Length: %d", large),
			"Expect: 100-continue"),
		stream("2^63-1 bytes promised", "413 LIMIT_EXCEEDED", 1<<20, "Content-Length: 9223372036854775807"),
		stream("2^63 bytes promised", "net/http 400", 0, "Content-Length: 9223372036854775808"),
		stream("2^64 bytes promised", "net/http 400", 0, "Content-Length: 18446744073709551616"),
		stream("a terabyte promised and none sent", "413 LIMIT_EXCEEDED", 0, "Content-Length: 1099511627776"),
		stream("a chunk of 2^63 bytes", "413|400", 1<<20, "Content-Length:",
			"Transfer-Encoding: chunked\r\n\r\n7fffffffffffffff"),
		stream("a chunk of 2^64 bytes and more", "413|400", 1<<10, "Content-Length:",
			"Transfer-Encoding: chunked\r\n\r\n1ffffffffffffffff"),
	)
	for i := range all {
		if strings.HasPrefix(all[i].name, "100 MB") {
			all[i].within = 3 * usual
		}
	}
	return all
}

// spaces is an endless io.Reader of white space.
type spaces struct{}

func (spaces) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	p[0] = '\n'
	return len(p), nil
}

func zip(text string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write([]byte(text)); err != nil {
		panic(err) // a bytes.Buffer does not fail
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	return b.String()
}

func utf16Of(text string, bigEndian bool) string {
	var b []byte
	for _, u := range utf16.Encode([]rune(text)) {
		if bigEndian {
			b = append(b, byte(u>>8), byte(u))
		} else {
			b = append(b, byte(u), byte(u>>8))
		}
	}
	return string(b)
}
