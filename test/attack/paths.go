package attack

import (
	"net/url"
	"strings"
)

// endpointsBody asks for the path of its own request many times.
var endpointsBody = `{"query":"{info{` + times(46, "e#:endpoints ") + `}}"}`

// paths returns requests with unsupported or unusual methods, paths and parameters.
func paths() []attack {
	var all []attack
	for _, m := range []string{
		"PUT", "DELETE", "PATCH", "TRACE", "CONNECT", "PROPFIND", "LINK", "PURGE", "SEARCH", "Query", "get", "Post",
		"GETT", "X",
		strings.Repeat("A", 1000), "PRI", "HEA", "POSTGET",
	} {
		want := "405 METHOD_NOT_ALLOWED"
		if m == "CONNECT" || m == "PRI" {
			want += "|net/http|cut"
		}
		all = append(all, plain("method "+short(m), want, func(s *target) (outcome, error) {
			return s.send(request(m, path, ""))
		}))
	}
	for _, m := range []string{"PUT", "DELETE", "X"} {
		all = append(all, plain("method with a body "+m, "405 METHOD_NOT_ALLOWED", func(s *target) (outcome, error) {
			return s.send(append(request(m, path, "", "Content-Type: application/json", "Content-Length: 27"),
				goodBody...))
		}))
	}
	for _, b := range []struct{ name, want, text, head string }{
		{"a good one", answered, goodBody, "Content-Type: application/json"},
		{"parameters in the URL only", badRequest, "", "Content-Type: application/json"},
		{"no type", "415 UNSUPPORTED_MEDIA_TYPE", goodBody, "Content-Type:"},
		{"a wrong type", "415 UNSUPPORTED_MEDIA_TYPE", goodBody, "Content-Type: application/sql"},
		{"a list", badRequest, "[" + goodBody + "]", "Content-Type: application/json"},
		{"a mutation", "400 GRAPHQL", `{"query":"mutation{a}"}`, "Content-Type: application/json"},
		{"a large body", "413 LIMIT_EXCEEDED", goodBody + strings.Repeat(" ", 1<<20), "Content-Type: application/json"},
		{"a body of levels", "LIMIT_EXCEEDED", `{"x":` + strings.Repeat("[", 60_000) + strings.Repeat("]", 60_000) +
			"}", "Content-Type: application/json"},
		{"10,000 tags", answered, goodBody, "If-None-Match: " + strings.Repeat(`W/"a",`, 10_000)},
		{"a wildcard tag", answered, goodBody, "If-None-Match: *"},
		{"a condition", answered, goodBody, "If-Match: \"x\""},
	} {
		all = append(all, plain("QUERY with "+b.name, b.want, func(s *target) (outcome, error) {
			return s.send(request("QUERY", path+"?query={", b.text, b.head))
		}))
	}
	good := "?query=%7Binfo%7Bversion%7D%7D"
	for _, h := range []string{
		"Access-Control-Request-Method: POST", "Access-Control-Request-Headers: " +
			strings.Repeat("tonclient-a,", 5000),
		"Access-Control-Request-Headers: a\x01", "Origin: https://evil.example",
	} {
		all = append(all, plain("preflight "+short(h), "answered|net/http 400", func(s *target) (outcome, error) {
			return s.send(request("OPTIONS", path, "", h))
		}))
	}
	for _, p := range []string{
		"/", "/graphql", "//graphql", "/open", "/open/", "/open/graphql/x", "/open/graphql/..", "/open/./graphql",
		"/open/../open/graphql",
		"/open//graphql", "/open/graphql//", "/open/Graphql", "/open/graphql%2f", "/open/graphql%00", "/open/graphql;x",
		"/open/graphql.php", "/a/b/graphql", "/open%2fgraphql", "/%6fpen/graphql%3f", "/.git/config", "/debug/pprof/",
		"/metrics",
		"/" + strings.Repeat("a/", 5000) + "graphql", "/" + strings.Repeat("../", 5000) + "open/graphql",
		"/open/graphql/" + strings.Repeat("a", 100_000),
	} {
		all = append(all, plain("path "+short(p), "net/http|401", func(s *target) (outcome, error) {
			return s.get(p + good)
		}))
	}
	for _, letter := range []string{"a", "\xff", "%ff", "é"} { // info.endpoints repeats the path for each alias
		p := "/" + strings.Repeat(letter, 15_000/len(letter)) + "/graphql"
		all = append(all, plain("long path of "+short(letter), "413 LIMIT_EXCEEDED", func(s *target) (outcome, error) {
			return s.send(request("POST", p, endpointsBody))
		}))
	}
	for _, p := range []string{
		path + "/", "/OPEN/graphql", "/%6fpen/graphql", "/op%65n/graphql", "/open/graph%71l",
		"http://evil.example" + path,
		"http://user:pass@evil.example:99999" + path, "https://[::1]" + path,
	} {
		all = append(all, plain("good path "+short(p), "answered|net/http", func(s *target) (outcome, error) {
			return s.get(p + good)
		}))
	}
	for _, q := range []string{
		"", "?", "?query", "?query=", "?Query={info{version}}", "?query={info{version}}&query={info{time}}",
		"?query=%zz", "?query=%",
		"?query=a;b=c", "?query={info{version}};variables={}", "?query={info{version}}&variables=x",
		"?query={info{version}}&variables=[]", "?query={info{version}}&variables=1",
		"?query={info{version}}&variables={}&variables={}",
		"?query={info{version}}&variables={%22a%22:1,%22a%22:2}", "?query={info{version}}&extensions=x",
		"?query={info{version}}&extensions=[]", "?query={info{version}}&operationName=a&operationName=b",
		"?query[]={info{version}}",
		"?query[a]=b", "?&&&&", "?=", "?variables={}", "?" + strings.Repeat("a&", 10_000),
		"?" + strings.Repeat("%00", 5000),
		"?query={info{version}}&variables=" + strings.Repeat("[", 50_000), "?%71uery[]=a", "?query%00={info{version}}",
		"?query={info{version}}&extensions={%22persistedQuery%22:1}",
	} {
		all = append(all, plain("parameters "+short(q), badRequest+"|400 LIMIT_EXCEEDED",
			func(s *target) (outcome, error) {
				return s.get(path + q)
			}))
	}
	for _, q := range []string{
		"mutation{a}", "mutation{info{version}}", "{...A}fragment A on Query{...A}", strings.Repeat("[", 50_000),
		"{a" + strings.Repeat("{a", 5000), strings.Repeat("#", 60_000), "\x00", "\ufeff", "\xff",
	} {
		all = append(all, plain("document in the URL "+short(q), "400|413 LIMIT_EXCEEDED",
			func(s *target) (outcome, error) {
				return s.get(path + "?query=" + url.QueryEscape(q))
			}))
		all = append(all, plain("HEAD of "+short(q), "answered|413", func(s *target) (outcome, error) {
			return s.send(request("HEAD", path+"?query="+url.QueryEscape(q), ""))
		}))
	}
	all = append(all, plain("subscription in the URL", "406 NOT_ACCEPTABLE", func(s *target) (outcome, error) {
		return s.get(path + "?query=subscription{blocks{id}}")
	}))
	return append(all, grown("bytes of a URL", "413 LIMIT_EXCEEDED|net/http 431", 4<<10, 4<<20,
		func(name, want string, n int) attack {
			return plain(name, want+"|400 LIMIT_EXCEEDED|cut", func(s *target) (outcome, error) {
				return s.get(path + good + strings.Repeat("+", n))
			})
		})...)
}
