//go:build !unix

package gqlws

import (
	"net"
	"syscall"
)

func rawOf(net.Conn) syscall.RawConn { return nil }

type tryWriter struct{ bytes []byte }

func newTryWriter() *tryWriter { return new(tryWriter) }

func (*tryWriter) tryWrite(syscall.RawConn) (written int, err error) { return 0, nil }
