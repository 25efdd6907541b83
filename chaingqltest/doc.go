// Package chaingqltest helps a host to test its fields, its Authorizer and its Options: it sends documents to a Handler
// in process, without a port, over a chain that the test advances.
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
// [Query], [Do] and [Subscribe] send a document to any http.Handler: a [chaingql.Handler], or the host's own mux with
// middleware. They send it to /demo/graphql without a secret; [As] chooses another project and a secret. For other
// headers, wrap the handler:
//
//	bearer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
//		r.Header.Set("Authorization", "Bearer "+token)
//		h.ServeHTTP(w, r)
//	})
//
// Subscriptions are event streams. The package has no client for WebSockets, so it cannot send the payload of
// connection_init.
//
// Everything works in a bubble of testing/synctest if the chain and the Handler are created in it.
package chaingqltest
