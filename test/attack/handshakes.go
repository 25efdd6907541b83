package attack

import (
	"encoding/base64"
	"strings"
)

// handshakes returns WebSocket handshakes that are malformed, or that come from clients without access.
func handshakes() []attack {
	hand := func(name, want string, headers ...string) attack {
		return opening(name, want, upgrade(path, modern, headers...))
	}
	var all []attack
	for _, v := range []string{"0", "7", "8", "12", "14", "130", "-13", "x", "", "13, 14", "13.0", "１３",
		strings.Repeat("13,", 1000)} {
		all = append(all, hand("version "+short(v), badRequest, "Sec-WebSocket-Version: "+v))
	}
	for _, k := range []string{
		"", "x", "AAAA", base64.StdEncoding.EncodeToString(make([]byte, 15)),
		base64.StdEncoding.EncodeToString(make([]byte, 17)),
		strings.Repeat("A", 10_000), "dGhlIHNhbXBsZSBub25jZQ", "dGhlIHNhbXBsZSBub25jZQ=!", "é",
	} {
		all = append(all, hand("key "+short(k), badRequest, "Sec-WebSocket-Key: "+k))
	}
	for _, p := range []string{
		"", "x", "graphql", "graphql-ws2", "graphql-transport-ws-x", "soap", "mqtt", "graphql_ws", ",", ",,,",
		"graphql ws", "\"graphql-ws\"",
		"graphql-ws;q=1", strings.Repeat("x,", 5000), "subscriptions-transport-ws", "graphql-sse", "graphql-ws\tx",
	} {
		all = append(all, hand("protocol "+short(p), badRequest, "Sec-WebSocket-Protocol: "+p))
	}
	for _, p := range []string{
		"GRAPHQL-WS", "graphql-ws, graphql-transport-ws", ",,graphql-ws,,",
		strings.Repeat("x, ", 4000) + "graphql-ws", "graphql-ws,graphql-ws",
		"x\r\nSec-WebSocket-Protocol: graphql-ws",
	} {
		all = append(all, hand("good protocol "+short(p), "served", "Sec-WebSocket-Protocol: "+p))
	}
	for _, o := range []string{
		"https://evil.example", "null", "http://attacked.example.evil.example", "http://attacked.example@evil.example",
		"http://evil.example/attacked.example", "http://attacked.example:1", "attacked.example", "//attacked.example.",
		"http://[::1", "%00",
		"http://attacked.example%00.evil",
		"http://", "file://", "chrome-extension://abc", "http://ATTACKED.EXAMPLE.", "http://аttacked.example",
		"http://evil.example#attacked.example", "http://evil.example?attacked.example", strings.Repeat("a", 50_000),
		"http://evil.example\thttp://attacked.example",
	} {
		all = append(all, hand("origin "+short(o), "403 BAD_REQUEST", "Origin: "+o))
	}
	all = append(all,
		hand("two origins", "403|served|400", "Origin: http://attacked.example", "Origin: https://evil.example"),
		hand("two origins, the foreign one first", "403", "Origin: https://evil.example",
			"Origin: http://attacked.example"),
		hand("foreign origin in X-Forwarded-Host", "403", "X-Forwarded-Host: evil.example",
			"Origin: https://evil.example"),
		hand("own origin", "served", "Origin: http://attacked.example"),
		hand("no version", badRequest, "Sec-WebSocket-Version:"),
		hand("no key", badRequest, "Sec-WebSocket-Key:"),
		hand("no protocol", badRequest, "Sec-WebSocket-Protocol:"),
		hand("no Connection", badRequest+"|served", "Connection:"),
		hand("Connection: close", badRequest, "Connection: close"),
		hand("Connection: close, Upgrade", badRequest+"|served", "Connection: close, Upgrade"),
		hand("two keys", badRequest, "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
			"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="),
		hand("two versions", badRequest+"|served", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Version: 8"),
		hand("a wrong secret", "401 UNAUTHENTICATED", "Authorization: Basic Ong="),
		hand("a malformed secret", "401 UNAUTHENTICATED", "Authorization: Basic x"),
		hand("a secret of 12 kB", "413 LIMIT_EXCEEDED", "Authorization: Basic "+
			base64.StdEncoding.EncodeToString([]byte(":"+strings.Repeat("x", 12_000)))),
		opening("a path of 600 bytes", "413 LIMIT_EXCEEDED", upgrade("/"+strings.Repeat("x", 600)+"/graphql", modern)),
		opening("a query of 9 kB", "413 LIMIT_EXCEEDED", upgrade(path+"?"+strings.Repeat("x", 9000), modern)),
		hand("a secret of another scheme", "served", "Authorization: Bearer x"),
		hand("compression", "served",
			"Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits; server_no_context_takeover"),
		hand("compression with nonsense", "served|400",
			"Sec-WebSocket-Extensions: permessage-deflate; server_max_window_bits=99"),
		hand("300 headers", "431 LIMIT_EXCEEDED", strings.TrimSuffix(times(300, "X-#: x\r\n"), "\r\n")),
		hand("10,000 extensions", "431 LIMIT_EXCEEDED",
			"Sec-WebSocket-Extensions: "+strings.Repeat("permessage-deflate,", 10_000)),
		hand("a body", "served|400", "Content-Length: 5"),
		hand("a chunked body", "served|400", "Transfer-Encoding: chunked"),
		hand("Upgrade in capitals", "served", "Upgrade: WEBSOCKET"),
		hand("Upgrade to two", "served|400", "Upgrade: h2c, websocket"),
		hand("Upgrade to a version", badRequest, "Upgrade: websocket/13"),
		hand("Upgrade to h2c", badRequest, "Upgrade: h2c"),
		opening("by POST", "400|405|415", []byte(strings.Replace(string(upgrade(path, modern)), "GET", "POST", 1))),
		plain("by HEAD", "400|406|answered", func(s *target) (outcome, error) {
			return s.send([]byte(strings.Replace(string(upgrade(path, modern)), "GET", "HEAD", 1)))
		}),
		opening("by HTTP/1.0", "400|served|net/http", []byte(strings.Replace(string(upgrade(path, modern)), "HTTP/1.1",
			"HTTP/1.0", 1))),
		opening("to another path", "net/http", upgrade("/open/socket", modern)),
		opening("to an unknown project", "served", upgrade("/nobody/graphql", modern)),
		opening("to a project with an encoded slash", "served|net/http", upgrade("/open%2fgraphql/graphql", modern)),
		opening("with a query in the URL", "served", upgrade(path+"?query={...A}fragment%20A%20on%20Query{...A}",
			modern)),
		opening("followed by frames", "served", append(upgrade(path, modern),
			textFrame(`{"type":"connection_init"}`)...)),
		opening("followed by a request", "served", append(upgrade(path, modern), request("GET", path, "")...)),
		opening("followed by a megabyte", "served|cut", append(upgrade(path, modern), make([]byte, 1<<20)...)),
		opening("twice at once", "served", append(upgrade(path, modern), upgrade(path, modern)...)),
	)
	return all
}
