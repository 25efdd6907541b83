package attack

import (
	"encoding/base64"
	"fmt"
	"strings"
)

// credentials returns requests with missing, malformed or wrong credentials.
func credentials() []attack {
	const no = "401 UNAUTHENTICATED Unauthorized access"
	basic := func(text string) string {
		return "Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(text))
	}
	var all []attack
	for _, h := range []string{
		basic(":wrong"), basic(":"), basic(""), basic("s3cret"), basic("user:" + secret), basic(":" + secret + " "),
		basic(": " + secret),
		basic(":" + secret + "\x00"), basic(":S3CRET"), basic("::" + secret), basic(":" + secret + "\n"),
		basic(":" + strings.Repeat("a", 10_000)), basic(":" + strings.Repeat("é", 10_000)), basic(":\xff\xfe"),
		"Authorization: Basic",
		"Authorization: Basic :" + secret, "Authorization: Basic ====", "Authorization: Basic OnMzY3JldA",
		"Authorization: Basic OnMzY3JldA===", "Authorization: Basic OnMz Y3JldA==",
		"Authorization: Basic OnMzY3JldA==x",
		"Authorization: Basic OnMzY3JldA==, Basic OnMzY3JldA==", "Authorization: Bearer " + secret,
		"Authorization: Bearer eyJhbGciOiJub25lIn0.e30.", "Authorization: Digest username=\"\"",
		"Authorization: Negotiate TlRMTVNTUAAB",
		"Authorization: " + secret, "Authorization: OnMzY3JldA==", "Authorization: BasicOnMzY3JldA==",
		"Authorization:\tBasic",
		"Authorization: " + strings.Repeat("Basic ", 1000), "Authorization: " + strings.Repeat("A", 100_000),
		"Authorization: Basic " + strings.Repeat("A", 100_000), "Authorization: Basic " + strings.Repeat("\xff", 100),
		"Proxy-Authorization: Basic OnMzY3JldA==",
		"Cookie: Authorization=Basic OnMzY3JldA==", "X-Authorization: Basic OnMzY3JldA==",
		"Authorization: Basic OnMzY3JldA==\r\nAuthorization: Basic eDp5",
		"Authorization: Basic eDp5\r\nAuthorization: Basic OnMzY3JldA==",
		"Authorization: Basic OnMzY3JldA==\r\nAuthorization: Basic OnMzY3JldA==", "X: y",
	} {
		want := no
		if strings.Count(h, "OnMzY3JldA==") == 2 && strings.Count(h, "\n") == 1 { // the same credentials twice
			want += "|answered"
		}
		all = append(all, plain("locked, "+short(h), want, func(s *target) (outcome, error) {
			return s.send(request("POST", "/locked/graphql", goodBody, h))
		}))
	}
	for _, project := range []string{
		"nobody", "known%00", "known%20", "known.", "%6bnown%2f", "locked%2e", "..%2flocked", "locked%2f..%2fopen%2f",
		"__proto__", "*", "%2a",
		"%ff", "ｌocked", "%c4%b1", "admin", strings.Repeat("a", 400), "%25", "open%0d%0aX:y", "open;x=y", "open,known",
		"known%2fgraphql",
		"%2e%2e", "%2e",
	} {
		all = append(all, plain("project "+short(project), no+"|net/http", func(s *target) (outcome, error) {
			return s.send(request("POST", "/"+project+"/graphql", goodBody, basic(":"+secret)))
		}))
	}
	// Project ids are compared in Unicode lower case. The last id starts with U+212A, whose lower case is k.
	for _, project := range []string{"KNOWN", "%4bnown", "%e2%84%aanown"} {
		at := func(name, want, secret string) attack {
			return plain("project "+project+name, want, func(s *target) (outcome, error) {
				return s.send(request("POST", "/"+project+"/graphql", goodBody, basic(":"+secret)))
			})
		}
		all = append(all, at(" with its secret", answered, secret), at(" with a wrong secret", no, "wrong"))
	}
	for _, query := range []string{"&secret=s3cret", "&accessKey=s3cret", "&Authorization=Basic%20OnMzY3JldA==",
		"&access_token=s3cret"} {
		all = append(all, plain("secret in the URL, "+query, no, func(s *target) (outcome, error) {
			return s.get("/locked/graphql?query={info{version}}" + query)
		}))
	}
	// Responses must not reveal which part of the credentials is wrong.
	return append(all, plain("the same response to all wrong credentials", no, func(s *target) (outcome, error) {
		first := ""
		var last outcome
		for _, text := range [][]byte{
			request("POST", "/locked/graphql", goodBody), request("POST", "/locked/graphql", goodBody, basic(":wrong")),
			request("POST", "/nobody/graphql", goodBody), request("POST", "/nobody/graphql", goodBody,
				basic(":"+secret)),
			request("POST", "/locked/graphql", goodBody, "Authorization: Basic x"),
			request("POST", "/open/graphql", goodBody, basic(":"+secret)),
			request("POST", "/locked/graphql", "{", basic(":wrong")),
		} {
			raw, err := s.raw(text)
			if err != nil {
				return last, err
			}
			if first == "" {
				first = raw
			}
			if raw != first {
				return last, fmt.Errorf("responses differ: %q and %q", raw, first)
			}
			if last, err = s.send(text); err != nil {
				return last, err
			}
		}
		return last, nil
	}))
}
