// Package attack sends a server thousands of hostile requests: distinct bodies, documents, headers,
// frames and socket behaviors, grouped into families. Its tests run all of them against chaingql,
// which runs in a separate process with default limits. The tests print one line per family. The line
// contains the number of attacks per outcome, the duration of the slowest attack, the longest time
// that an honest subscriber waited for a block during the attacks, and the growth of memory,
// goroutines and file descriptors. RESULTS.md contains these lines from one run.
//
// An attack fails if its outcome is neither a clear refusal nor a harmless response, or if it takes
// too long. It also fails if the server has exited afterwards, or cannot answer an honest query within
// a second. A family fails if one of its attacks fails, if the server's memory grows too much, or if
// goroutines or files are not released. For documents, the server's CPU time is limited too, because
// elapsed time includes the work of other programs on the machine.
//
//	go test -v .                                     the short form
//	go test -v . -args -attack.full                  all sizes, and 9,000 connections
//	go test -v . -run Survives -args -attack.only "half a frame" -attack.each
//
// The last command runs only the attacks whose names contain "half a frame" and prints the outcome of
// each.
//
// Two servers are deliberately weak, to show that the attacks are effective: graphql-go/handler as its
// README sets it up, and chaingql with all limits turned off. The table in weak_test.go lists the
// attacks that must harm them.
//
// This package is a separate module, so that its dependencies stay out of the core's go.mod. It needs
// Linux, because it reads memory use and file counts from /proc.
package attack
