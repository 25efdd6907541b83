// Package soak holds no code, only a test that serves for a long time what a
// service on the open internet is sent: honest clients, whose every answer and
// block is checked, beside hostile ones, while the source fails now and then and
// the service is restarted. The service is a process of its own, kept busy at a
// share of the machine. When all have left it must hold what it held after a
// short run of the same kind, in memory, goroutines and files.
//
//	make soak                                     # ten minutes
//	make soak SOAK='-soak.for 1h'                 # or longer
//	make soak SOAK='-soak.for 30s -soak.leak'     # must fail: the service keeps something of each request
//	go test .                                     # some seconds
package soak
