//go:build !linux

package gqlws

import (
	"errors"
	"sync"
	"syscall"
)

// A poller does nothing on this operating system: the reader of each connection keeps its goroutine while it waits.
type poller struct{ wg sync.WaitGroup }

const canPoll = false

func (*poller) arm(*conn) bool { return false }
func (*poller) remove(*conn)   {}

func hungUp(syscall.RawConn) bool { return false }

func (n *netConn) tryRead([]byte) (int, error) { return 0, errors.ErrUnsupported }
