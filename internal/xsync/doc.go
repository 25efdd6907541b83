// Package xsync has synchronization tools that the standard library lacks: calls
// that several callers share, a context whose timer is started only if something
// waits for it, and a cheap clock for deadlines.
package xsync
