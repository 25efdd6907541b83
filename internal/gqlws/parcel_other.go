//go:build !unix

package gqlws

import (
	"errors"
	"net"
	"syscall"
)

func rawOf(net.Conn) syscall.RawConn { return nil }

type parcel struct{ bytes []byte }

func newParcel() *parcel { return new(parcel) }

func (p *parcel) offer(*netConn) (took int, err error) { return 0, errors.ErrUnsupported }
