// Package liteservertest is a lite server for tests: a real one as far as a
// client can tell, on 127.0.0.1, that serves a chain out of memory.
//
//	chain := liteservertest.Made(40) // or Recorded, of a node's archive packs
//	server, err := liteservertest.Start(chain)
//	if err != nil {
//		t.Fatal(err)
//	}
//	t.Cleanup(server.Stop)
//	backend, err := tonlite.Open(ctx, server.Config(), nil)
//
// It grows when it is told to ([Server.Advance]), forgets ([Server.Forget]),
// hangs ([Server.Stall]), hangs up ([Server.Interrupt]), goes away and comes
// back on the same address ([Server.Stop], [Server.Restart]), and lies
// ([Server.Tell]).
package liteservertest
