// Package xsync contains synchronization tools that the standard library lacks: calls
// that several callers share, a gate that limits what is in progress and can be
// drained, a budget that bounds the bytes kept for clients, a context that starts its
// timer only if something waits for it, and a cheap clock for deadlines.
package xsync
