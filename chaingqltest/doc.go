// Package chaingqltest is for tests of an application that mounts a [chaingql.Handler]. It helps to test the
// application's own fields, its Authorizer and its Options. The package calls the Handler in the same process, without
// a network port, and provides a chain whose blocks the test appends.
//
//	func TestNewBlocks(t *testing.T) {
//		chain := chaingqltest.NewChain(t)
//		h := chaingqltest.NewHandler(t, chain, nil)
//		blocks := chaingqltest.Subscribe(t, h, `subscription { blocks { seq_no } }`, nil)
//		chain.Advance(2)
//		got := chaingqltest.Take(t, blocks, 2)
//		if got[0] != `{"blocks":{"seq_no":1}}` || got[1] != `{"blocks":{"seq_no":2}}` {
//			t.Errorf("got %s", got)
//		}
//	}
//
// [Query], [Do] and [Subscribe] send a document to any http.Handler: a [chaingql.Handler], or the application's own mux
// with middleware. They send it to the path /demo/graphql without a secret. [As] sets another project and a secret. To
// set other headers, wrap the handler:
//
//	bearer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
//		r.Header.Set("Authorization", "Bearer "+token)
//		h.ServeHTTP(w, r)
//	})
//
// Subscriptions use event streams. The package has no WebSocket client, so it cannot send a payload of connection_init.
//
// Everything works in a bubble of testing/synctest if the chain and the Handler are created in that bubble.
package chaingqltest
