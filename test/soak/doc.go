// Package soak contains only a test that runs a service for a long time under the load of the open
// internet. Honest clients check every response and block. Hostile clients run at the same time,
// while the source fails now and then and the service is replaced. The service runs in a separate
// process that takes a fixed share of the machine. After all clients have left, its memory,
// goroutines and files must match those after a short run of the same kind.
//
//	make soak                                     # ten minutes
//	make soak SOAK='-soak.for 1h'                 # or longer
//	make soak SOAK='-soak.for 30s -soak.leak'     # must fail: the service keeps some data of each request
//	go test .                                     # some seconds
package soak
