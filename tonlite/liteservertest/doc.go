// Package liteservertest provides a lite server for tests. It implements the real protocol on
// 127.0.0.1 and serves a chain from memory.
//
//	chain := liteservertest.Generate(40) // or Recorded, for a node's archive packs
//	server, err := liteservertest.Start(chain)
//	if err != nil {
//		t.Fatal(err)
//	}
//	t.Cleanup(server.Stop)
//	backend, err := tonlite.Open(ctx, server.Config(), nil)
//
// Tests can add blocks ([Server.Advance]), delete old blocks ([Server.Forget]), stall the server
// ([Server.Stall]), close its connections ([Server.Interrupt]), restart it at the same address
// ([Server.Stop], [Server.Restart]), and make it send false responses ([Server.SetLie]).
package liteservertest
