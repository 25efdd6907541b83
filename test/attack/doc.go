// Package attack is what a hostile internet does to a server: thousands of
// distinct bodies, documents, headers, frames and socket behaviours, in
// families. Its tests run all of them against chaingql in a process of its own,
// with default limits, and print a line per family: how many attacks came to
// what, the slowest, how long an honest subscriber beside them waited for a block
// at most, and by how much memory, goroutines and file descriptors grew. RESULTS.md
// keeps such lines.
//
// An attack fails its family when it comes to something else than a clear
// refusal or a harmless answer, takes too long, or leaves the server dead, larger
// or not able to answer an honest query within a second. Documents are held to
// some processor time of the server's: the time that passes is also that of
// whoever else is at work on the machine.
//
//	go test -v .                                     the short form
//	go test -v . -args -attack.full                  all sizes, and 9,000 connections
//	go test -v . -run Survives -args -attack.only "half a frame" -attack.each
//
// The last one repeats the attacks that have this in their names, and says what
// each came to.
//
// That the attacks are ones is shown by servers which are weak on purpose:
// graphql-go/handler as its README has it, and chaingql with all limits turned
// off. Each comes to harm by the families that the table in weak_test.go names.
//
// It is a module of its own, so that the core's go.mod gains nothing by it, and
// needs Linux, whose /proc tells of memory and files.
package attack
