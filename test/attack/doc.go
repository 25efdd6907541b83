// Package attack sends a server thousands of hostile requests: distinct bodies, documents, headers,
// frames and socket behaviors, grouped into families. Its tests run all of them against chaingql in
// a separate process with default limits. They print one line per family: the number of attacks per
// outcome, the slowest one, the longest time that an honest subscriber waited for a block
// meanwhile, and the growth of memory, goroutines and file descriptors. RESULTS.md keeps such
// lines.
//
// An attack fails its family if its outcome is neither a clear refusal nor a harmless response, if
// it takes too long, or if the server afterwards is dead, uses more memory, or cannot answer an
// honest query within a second. Documents are also limited in the server's CPU time, because
// elapsed time includes the work of other programs on the machine.
//
//	go test -v .                                     the short form
//	go test -v . -args -attack.full                  all sizes, and 9,000 connections
//	go test -v . -run Survives -args -attack.only "half a frame" -attack.each
//
// The last command runs only the attacks whose names contain this text, and prints the outcome of
// each.
//
// Deliberately weak servers show that the attacks are effective: graphql-go/handler as its README
// sets it up, and chaingql with all limits turned off. The table in weak_test.go lists the families
// that harm them.
//
// This is a separate module, so that the core's go.mod gets no dependency from it. It needs Linux:
// it reads memory and file counts from /proc.
package attack
