//go:build !unix

package chaingql

func fileLimit() uint64 { return noFileLimit }

func filesLow() bool { return false }
